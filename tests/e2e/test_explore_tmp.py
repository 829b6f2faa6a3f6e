from asking import *
def test_it(shared, ask):
    print(ask.index())
    for d, v in [("int64",3.0),]:
        print(ask.infer("int64", x("INT64",[3.0])).body)
    print(ask.infer("möd", x("FP32",[3.0])).body)
    print(ask.get("/v2/models/m%C3%B6d").body)
    import time; 
    assert 0
