"""Network architectures, written node by node as ONNX graphs: no deep-learning framework is needed."""
