"""The HTTP of dispatch: it reads requests, asks who is there, calls the rest of dispatch and words the answers."""
