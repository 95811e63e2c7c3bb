"""The contract for programs: the OpenAPI and AsyncAPI documents, and the reference made from them."""
