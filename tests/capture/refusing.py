"""Owns what tests of refusals ask: that a call raises the error of captures, with these words."""

import agtape as ag
import pytest


def refuses(call, *words):
    with pytest.raises(ag.CaptureError) as caught:
        call()
    text = str(caught.value)
    assert text.startswith("capture: ")
    for word in words:
        assert word in text, (word, text)
