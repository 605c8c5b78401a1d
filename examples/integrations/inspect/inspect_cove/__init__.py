"""Sandboxes of Cove for Inspect AI: `sandbox="cove"`."""

from .environment import CoveConfig, CoveSandboxEnvironment

__all__ = ["CoveConfig", "CoveSandboxEnvironment"]
