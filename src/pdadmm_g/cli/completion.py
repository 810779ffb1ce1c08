"""Completion in the shell: what may follow, and the script that asks for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import click
from click.shell_completion import CompletionItem, get_completion_class

#: The data sets known by name, here so that completing them does not load torch.
DATASETS = (
    "digits", "cora", "pubmed", "citeseer", "amazon-computers", "amazon-photo", "coauthor-cs", "coauthor-physics",
    "flickr", "ogbn-arxiv",
)  # fmt: skip

Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def words(choices: Iterable[str], *, then: str = "") -> Completer:
    """Completes these words, and ``then`` what the shell knows: "file" or "dir"."""

    def complete(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
        items = [CompletionItem(word) for word in choices if word.startswith(incomplete)]
        return items + ([CompletionItem(incomplete, type=then)] if then else [])

    return complete


@click.command(short_help="Print the script that completes commands in your shell.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script that lets SHELL complete commands, options, choices and names of data sets.

    \b
    source <(pdadmm-g completion bash)                                       in ~/.bashrc
    source <(pdadmm-g completion zsh)                                        in ~/.zshrc, after compinit
    pdadmm-g completion fish > ~/.config/fish/completions/pdadmm-g.fish      once
    """
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(context.find_root().command, {}, "pdadmm-g", "_PDADMM_G_COMPLETE").source())
