#!/usr/bin/env python3
"""Looks like llama-bench to bench/compare.py: the model comes with -m. Usage: bench_peer.py path/to/numoe OPTION …"""
import os
import sys

options = sys.argv[2:]
at = options.index("-m")
os.execv(sys.argv[1], [sys.argv[1], "bench", options[at + 1], *options[:at], *options[at + 2:]])
