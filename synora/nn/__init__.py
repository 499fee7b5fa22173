"""Network and distribution pieces that two or more algorithms share; pure torch, no algorithm is imported here."""
