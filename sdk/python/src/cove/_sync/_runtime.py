"""What is not the same word in blocking and in asynchronous code; written by hand in both."""

from __future__ import annotations

from threading import Lock
from time import sleep

from httpcore import NetworkStream
from httpx import Client as HttpClient

__all__ = ["HttpClient", "Lock", "NetworkStream", "sleep"]
