"""The algorithm: pure functions on tensors, one per subproblem, under the paper's names.

``algorithm1``   Algorithm 1 of the paper, line by line
``updates``      the p-, W-, b-, q- and u-steps, linearized, exact and quantized
``activations``  f, and the z-step of a hidden layer
``risks``        R, the targets that it is of, and the z-step of the last layer
``rows``         the training rows, and norms, sums and products over them that keep their digits
``levels``       level sets for quantization
``state``        what a layer and a boundary between two layers hold, and how a forward pass fills them
``diagnostics``  Lagrangian, residuals, condition on rho, rate series

Nothing here knows of files, processes or of the rest of the package.
"""
