"""What programs can rely on: the OpenAPI and AsyncAPI documents, and the reference made from them."""
