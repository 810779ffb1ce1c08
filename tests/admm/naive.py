"""Algorithm 1 of the paper, transcribed as slowly and plainly as possible.

Independent of the package on purpose: numpy instead of torch, column-major as in the paper (features x nodes), every
product recomputed from its definition, step sizes found from the inequalities that define them, ReLU by comparing the
full objective of both branches, the last layer by a dense Newton method. One deviation, as in the package: the
b-step is the exact minimiser.
"""

from __future__ import annotations

import numpy as np


class NaivePdADMM:
    def __init__(self, W, b, X, y, *, nu, rho):
        """W_l (out x in), b_l (out), X (features x nodes), y (nodes)."""
        self.W, self.b = [w.copy() for w in W], [v.copy() for v in b]
        self.L, self.nu, self.rho, self.y = len(W), nu, rho, y
        self.p, self.z, self.q, self.u = [X], [], [], []
        for layer in range(self.L):
            self.z.append(self.m(layer))
            if layer < self.L - 1:
                self.q.append(np.maximum(self.z[layer], 0))
                self.p.append(self.q[layer].copy())
                self.u.append(np.zeros_like(self.q[layer]))

    def m(self, layer):
        return self.W[layer] @ self.p[layer] + self.b[layer][:, None]

    def phi(self, layer):
        value = self.nu / 2 * np.sum((self.z[layer] - self.m(layer)) ** 2)
        if layer > 0:
            gap = self.p[layer] - self.q[layer - 1]
            value += np.sum(self.u[layer - 1] * gap) + self.rho / 2 * np.sum(gap**2)
        return value

    def quadratic_step(self, layer, variable, gradient):
        """x - gradient / t with the smallest t for which phi(new) <= phi(x) + <gradient, d> + t/2 |d|^2."""
        length = np.sqrt(np.sum(gradient**2))
        if length == 0:
            return
        x, start = variable[layer].copy(), self.phi(layer)
        variable[layer] = x - gradient / length
        # phi is quadratic: along a unit step d, phi(x + d) = phi(x) + <gradient, d> + curvature / 2.
        curvature = 2 * (self.phi(layer) - start + length)
        variable[layer] = x - gradient / curvature

    def epoch(self):
        L, nu, rho = self.L, self.nu, self.rho
        for layer in range(1, L):
            residual = self.m(layer) - self.z[layer]
            gap = self.p[layer] - self.q[layer - 1]
            self.quadratic_step(layer, self.p, nu * self.W[layer].T @ residual + self.u[layer - 1] + rho * gap)
        for layer in range(L):
            residual = self.m(layer) - self.z[layer]
            self.quadratic_step(layer, self.W, nu * residual @ self.p[layer].T)
        for layer in range(L):
            self.b[layer] = self.b[layer] - (self.m(layer) - self.z[layer]).mean(axis=1)
        for layer in range(L - 1):
            self.z[layer] = self.relu_z(self.m(layer), self.q[layer], self.z[layer])
        self.z[L - 1] = self.last_z(self.m(L - 1))
        for layer in range(L - 1):
            fz = np.maximum(self.z[layer], 0)
            self.q[layer] = (rho * self.p[layer + 1] + self.u[layer] + nu * fz) / (rho + nu)
        for layer in range(L - 1):
            self.u[layer] = self.u[layer] + rho * (self.p[layer + 1] - self.q[layer])

    @staticmethod
    def relu_z(m, q, old):
        negative, positive = np.minimum((m + old) / 2, 0), np.maximum((m + q + old) / 3, 0)

        def full(z):
            return (z - m) ** 2 + (q - np.maximum(z, 0)) ** 2 + (z - old) ** 2

        return np.where(full(positive) <= full(negative), positive, negative)

    def last_z(self, m):
        classes, nodes = m.shape
        z = m.copy()
        for node in range(nodes):
            target = np.eye(classes)[self.y[node]]
            x = z[:, node].copy()
            for _ in range(200):
                s = np.exp(x - x.max())
                s /= s.sum()
                gradient = s - target + self.nu * (x - m[:, node])
                hessian = np.diag(s) - np.outer(s, s) + self.nu * np.eye(classes)
                step = np.linalg.solve(hessian, gradient)
                length = 1.0
                # Close to the optimum full steps converge, and rounding hides the decrease.
                if np.abs(gradient).max() > 1e-6:
                    here = self.node(x, m[:, node], target)
                    while self.node(x - length * step, m[:, node], target) > here:
                        length /= 2
                x = x - length * step
                if np.abs(gradient).max() < 1e-14:
                    break
            z[:, node] = x
        return z

    def node(self, x, m, target):
        log_sum = x.max() + np.log(np.exp(x - x.max()).sum())
        return log_sum - x @ target + self.nu / 2 * np.sum((x - m) ** 2)
