"""The paper's counting component: equations, fused kernels, and the layer over them."""
