//! Why a connection ended.

use std::io;

/// An error that ends a connection.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot read from or write to the SPDY connection")]
    Io(#[from] io::Error),
    #[error("the peer violated SPDY/3.1: {0}")]
    Protocol(&'static str),
    #[error("the SPDY connection was idle for too long")]
    Idle,
}
