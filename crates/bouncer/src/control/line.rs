//! Stream of a control connection, encrypted or not, with its read buffer.

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

use super::{ANSWER_BYTES_MAX, ControlError};
use crate::tenants::{BackendAddress, ServerAddress};
use crate::tls::{self, ServerSide, TlsError};

/// Bytes per read.
const READ_BYTES: usize = 4096;

trait ControlStream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> ControlStream for S {}

/// A connection.
pub(crate) struct ControlLine {
    stream: Box<dyn ControlStream>,
    /// Bytes that were read and not yet parsed.
    pub(crate) input: Vec<u8>,
}

impl ControlLine {
    /// Connects.
    pub(crate) async fn connect(address: &BackendAddress) -> Result<ControlLine, ControlError> {
        let stream: Box<dyn ControlStream> = match address {
            BackendAddress::Unix { .. } | BackendAddress::Socket { .. } => {
                let path = address.socket_path().unwrap_or_default();
                Box::new(UnixStream::connect(path).await?)
            }
            BackendAddress::Tcp { host, port } => {
                let stream = TcpStream::connect((host.as_str(), *port)).await?;
                stream.set_nodelay(true)?;
                Box::new(stream)
            }
        };
        Ok(ControlLine { stream, input: Vec::new() })
    }

    /// Performs the TLS handshake. Returns the hash of the server's certificate, for channel
    /// binding.
    pub(crate) async fn start_tls(
        &mut self,
        tls: &ServerSide,
        server: &ServerAddress,
    ) -> Result<Option<Vec<u8>>, ControlError> {
        let config = tls.config(&server.tls)?;
        let name = server_name(&server.address)?;
        let plain: Box<dyn ControlStream> =
            std::mem::replace(&mut self.stream, Box::new(tokio::io::empty()));
        let stream = TlsConnector::from(config).connect(name, plain).await?;
        let end_point = tls::end_point(stream.get_ref().1);
        self.stream = Box::new(stream);
        Ok(end_point)
    }

    /// Sends and empties the buffer.
    pub(crate) async fn send(&mut self, out: &mut Vec<u8>) -> Result<(), ControlError> {
        if !out.is_empty() {
            self.stream.write_all(out).await?;
            self.stream.flush().await?;
            out.clear();
        }
        Ok(())
    }

    /// Reads more.
    pub(crate) async fn read(&mut self) -> Result<(), ControlError> {
        if self.input.len() > ANSWER_BYTES_MAX {
            return Err(ControlError::Protocol("too long an answer"));
        }
        self.input.reserve(READ_BYTES);
        match self.stream.read_buf(&mut self.input).await? {
            0 => Err(ControlError::Closed),
            _ => Ok(()),
        }
    }
}

fn server_name(address: &BackendAddress) -> Result<ServerName<'static>, TlsError> {
    let host = match address {
        BackendAddress::Tcp { host, .. } => host.as_str(),
        BackendAddress::Unix { .. } | BackendAddress::Socket { .. } => "localhost",
    };
    ServerName::try_from(host.to_owned()).map_err(|_| TlsError::Name(host.to_owned()))
}
