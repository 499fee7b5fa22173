"""Environments: every task as 64x64 uint8 images behind one small interface, made by `factory.make_env`.

No torch here; the emulator, bsuite and Gymnasium are imported when an environment of theirs is made.
"""
