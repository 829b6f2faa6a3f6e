"""Decoupled: answers IN0's elements one by one, from a thread, after ``execute`` has returned."""

import threading

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.threads = []

    def execute(self, requests):
        for request in requests:
            values = pb_utils.get_input_tensor_by_name(request, "IN0").as_numpy()
            thread = threading.Thread(target=self.answer, args=(request.get_response_sender(), values), daemon=True)
            thread.start()
            self.threads.append(thread)

    @staticmethod
    def answer(sender, values):
        for index, value in enumerate(values.reshape(-1)):
            if sender.is_cancelled():
                error = pb_utils.TritonError("stopped", pb_utils.TritonError.CANCELLED)
                sender.send(pb_utils.InferenceResponse(error=error))
                break
            outputs = [
                pb_utils.Tensor("OUT0", np.array([value])),
                pb_utils.Tensor("IDX", np.array([index], dtype=np.uint32)),
            ]
            sender.send(pb_utils.InferenceResponse(outputs))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    def finalize(self):
        for thread in self.threads:
            thread.join()
