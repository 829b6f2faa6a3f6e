"""A model that says itself what it takes and gives: there is no config.pbtxt."""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(auto_complete_model_config):
        auto_complete_model_config.add_input({"name": "A", "data_type": "TYPE_INT32", "dims": [2]})
        auto_complete_model_config.add_input({"name": "B", "data_type": "TYPE_INT32", "dims": [2], "optional": True})
        auto_complete_model_config.add_output({"name": "SUM", "data_type": "TYPE_INT32", "dims": [2]})
        auto_complete_model_config.set_max_batch_size(8)
        auto_complete_model_config.set_dynamic_batching()
        return auto_complete_model_config

    def execute(self, requests):
        responses = []
        for request in requests:
            total = sum(given.as_numpy().astype(np.int64) for given in request.inputs())
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("SUM", total.astype(np.int32))]))
        return responses
