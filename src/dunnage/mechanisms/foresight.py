from dunnage.mechanisms.base import Foresight

__all__ = ["Foresight"]
