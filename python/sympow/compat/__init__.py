"""Functions of other packages, with their names, arguments, layouts and states, computed by sympow.

`sympow.compat.fla`: flash-linear-attention; `sympow.compat.retention`: power retention, which both need PyTorch;
`sympow.compat.onnx`: an operator of ONNX, on numpy arrays. An argument that has no meaning here raises `sympow.NotBuilt`, which says what to call instead.
"""
