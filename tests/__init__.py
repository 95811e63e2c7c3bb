"""The folders of tests mirror those of `live/`.

Tests of the whole server and of the project are directly in this folder.
"""
