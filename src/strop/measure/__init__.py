"""Paired measurement: reference and variant in two processes, block by block in turns, over fresh instances of both."""
