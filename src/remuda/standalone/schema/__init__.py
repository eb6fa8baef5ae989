"""CRD schemas at work: prune, default and validate objects as the API server does, compiled once per CRD. Pure."""

from remuda.standalone.schema.faults import SchemaFault
from remuda.standalone.schema.structural import StructuralSchema

__all__ = ["SchemaFault", "StructuralSchema"]
