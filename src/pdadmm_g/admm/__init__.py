"""The algorithm: pure functions on tensors, one per subproblem, under the paper's names.

``updates``      the p-, W-, b-, q- and u-steps, linearized, exact and quantized
``activations``  f, and the z-step of a hidden layer
``risks``        R, and the z-step of the last layer
``levels``       level sets for quantization
``state``        what a layer and a boundary between two layers hold, and how a forward pass fills them
``diagnostics``  Lagrangian, residuals, condition on rho, rate series

Nothing here knows of files, processes or of the rest of the package.
"""
