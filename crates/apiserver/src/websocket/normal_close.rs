//! Close frames of this server: like those of v1.34, they have the code 1000 and no reason, even if the client closes
//! with another code. The WebSocket library would send that back.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A close frame with the code 1000.
const CLOSE_FRAME: [u8; 4] = [0x88, 2, 0x03, 0xe8];
const OPCODE_BITS: u8 = 0x0f;
const CLOSE: u8 = 8;

/// The server's side of a connection. Replaces the close frames that are written to it.
pub(crate) struct NormalClose<Io> {
    io: Io,
    /// How much of the current frame is left to be written.
    left: u64,
    /// How much of the current [`CLOSE_FRAME`] has been written.
    closing: usize,
}

impl<Io> NormalClose<Io> {
    pub(super) fn new(io: Io) -> Self {
        Self { io, left: 0, closing: 0 }
    }
}

/// Returns the opcode and length of the frame that starts here. `None` if its header is incomplete.
fn frame(bytes: &[u8]) -> Option<(u8, u64)> {
    let (opcode, length) = (bytes.first()? & OPCODE_BITS, bytes.get(1)? & 0x7f);
    let (header, payload) = match length {
        126 => (4, u64::from(u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?))),
        127 => (10, u64::from_be_bytes(bytes.get(2..10)?.try_into().ok()?)),
        length => (2, u64::from(length)),
    };
    Some((opcode, payload.saturating_add(header)))
}

impl<Io: AsyncWrite + Unpin> AsyncWrite for NormalClose<Io> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.left == 0 && !bytes.is_empty() {
            // The library keeps whole frames until they are written, so a header is always complete.
            let (opcode, length) = frame(bytes).unwrap_or((0, u64::MAX));
            if opcode == CLOSE {
                while let rest @ [_, ..] = &CLOSE_FRAME[this.closing..] {
                    match ready!(Pin::new(&mut this.io).poll_write(context, rest))? {
                        0 => return Poll::Ready(Ok(0)),
                        count => this.closing += count,
                    }
                }
                this.closing = 0;
                return Poll::Ready(Ok(bytes.len().min(usize::try_from(length).unwrap_or(usize::MAX))));
            }
            this.left = length;
        }
        let most = bytes.len().min(usize::try_from(this.left).unwrap_or(usize::MAX));
        let count = ready!(Pin::new(&mut this.io).poll_write(context, &bytes[..most]))?;
        this.left -= count as u64;
        Poll::Ready(Ok(count))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_shutdown(context)
    }
}

impl<Io: AsyncRead + Unpin> AsyncRead for NormalClose<Io> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_read(context, buffer)
    }
}

#[cfg(test)]
mod tests {
    use futures::{SinkExt, StreamExt};
    use tokio::io::AsyncReadExt;
    use tokio_tungstenite::WebSocketStream;
    use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
    use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Message, Role};

    use super::*;

    /// Writes everything through a connection that takes a few bytes at a time, and returns what arrives.
    async fn written(room: usize, pieces: &[Message]) -> Vec<u8> {
        let (near, mut far) = tokio::io::duplex(room);
        let mut server = WebSocketStream::from_raw_socket(NormalClose::new(near), Role::Server, None).await;
        let writing = async {
            for piece in pieces {
                server.send(piece.clone()).await.unwrap();
            }
            drop(server);
        };
        let mut arrived = Vec::new();
        let ((), read) = tokio::join!(writing, far.read_to_end(&mut arrived));
        read.unwrap();
        arrived
    }

    #[tokio::test]
    async fn frames_pass_and_every_close_is_normal() {
        let close = |code| Message::Close(Some(CloseFrame { code, reason: "because".into() }));
        for (length, header) in [
            (5, vec![0x82, 5]),
            (300, vec![0x82, 126, 1, 44]),
            (70_000, vec![0x82, 127, 0, 0, 0, 0, 0, 1, 17, 112]),
        ] {
            let data = vec![8; length];
            let expected =
                [header.clone(), data.clone(), header, data.clone(), CLOSE_FRAME.to_vec()].concat();
            let pieces = [Message::binary(data.clone()), Message::binary(data), close(CloseCode::Away)];
            for room in [1, 3, 100_000] {
                assert_eq!(written(room, &pieces).await, expected, "{length} bytes, {room} at a time");
            }
        }
    }

    #[tokio::test]
    async fn a_clients_close_is_answered_with_a_normal_one() {
        for code in [Some(CloseCode::Away), Some(CloseCode::Library(4000)), Some(CloseCode::Normal), None] {
            let (near, far) = tokio::io::duplex(1024);
            let mut client = WebSocketStream::from_raw_socket(near, Role::Client, None).await;
            let mut server =
                WebSocketStream::from_raw_socket(NormalClose::new(far), Role::Server, None).await;
            let frame = code.map(|code| CloseFrame { code, reason: "bye".into() });
            client.send(Message::Close(frame)).await.unwrap();
            let serving = async { while let Some(Ok(_)) = server.next().await {} };
            let ((), answer) = tokio::join!(serving, client.next());
            let Message::Close(Some(answer)) = answer.unwrap().unwrap() else { panic!("{code:?}") };
            assert_eq!((answer.code, &*answer.reason), (CloseCode::Normal, ""), "{code:?}");
        }
    }
}
