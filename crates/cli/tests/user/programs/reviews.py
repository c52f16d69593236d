"""Webhooks in Python: serves reviews over TLS, by the kind of the review."""

import base64
import http.server
import json
import os
import ssl
import threading

certificate, key = (os.path.join(os.environ["CERTIFICATES"], name) for name in ("certificate.pem", "key.pem"))


def serve(answer):
    """Serves reviews with a function from a request to a response. Returns the clientConfig of the webhook."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            request = review.pop("request")
            review["response"] = {"uid": request["uid"], **answer(request)}
            body = json.dumps(review).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with open(certificate, "rb") as file:
        bundle = base64.b64encode(file.read()).decode()
    return {"url": "https://localhost:%d/" % server.server_address[1], "caBundle": bundle}
