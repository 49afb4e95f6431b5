//! The encoding of messages: a length, and the message encoded by postcard.

use std::io;

use ardea_core::{Error, ErrorCode, Result};
use bytes::Bytes;
use postcard::ser_flavors::{Flavor, Size};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncReadExt};

/// Size of the length prefix, in bytes.
pub(crate) const LENGTH_BYTES: usize = 4;

/// Minimum read size, in bytes.
const READ_BYTES: usize = 16 << 10;

/// Capacity that an empty buffer may retain, in bytes.
const KEPT_BYTES: usize = 256 << 10;

/// An encoded message. Cheap to clone: a message for many peers is encoded once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Encoded(Bytes);

impl Encoded {
    /// Encodes a message.
    ///
    /// # Errors
    /// [`ErrorCode::LimitReached`] if it is 4 GiB or longer; [`ErrorCode::Internal`] if its type
    /// can't be serialised.
    pub fn new<M: Serialize + ?Sized>(message: &M) -> Result<Self> {
        // The size is computed first: a long message would otherwise be moved while its memory
        // grows, and for a short one the extra pass costs less than its memory.
        let body_bytes = postcard::serialize_with_flavor(message, Size::default());
        let mut bytes = Vec::with_capacity(LENGTH_BYTES + body_bytes.unwrap_or_default());
        write(message, &mut bytes)?;
        Ok(Encoded(bytes.into()))
    }

    /// Writes the length into the space reserved before the body.
    pub(crate) fn framed(mut bytes: Vec<u8>) -> Result<Self> {
        announce(&mut bytes)?;
        Ok(Encoded(bytes.into()))
    }

    /// Returns the frame.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the length of the message, in bytes, without the prefix.
    pub fn body_bytes(&self) -> usize {
        self.0.len() - LENGTH_BYTES
    }
}

/// Appends an encoded message to `out`.
///
/// # Errors
/// [`ErrorCode::LimitReached`] if it is 4 GiB or longer; [`ErrorCode::Internal`] if its type can't
/// be serialised. In both cases `out` is unchanged.
pub fn write<M: Serialize + ?Sized>(message: &M, out: &mut Vec<u8>) -> Result<()> {
    let start = out.len();
    out.extend([0; LENGTH_BYTES]);
    let written = postcard::serialize_with_flavor(message, Behind(out)).map_err(|error| {
        Error::new(ErrorCode::Internal, "a message can't be encoded").because(error)
    });
    let announced = written.and_then(|()| announce(&mut out[start..]));
    announced.inspect_err(|_| out.truncate(start))
}

/// Writes the length of a body into the space reserved before it.
fn announce(frame: &mut [u8]) -> Result<()> {
    let length = frame.len() - LENGTH_BYTES;
    let Ok(announced) = u32::try_from(length) else {
        return Err(Error::new(
            ErrorCode::LimitReached,
            format!("a message of {length} bytes is too long to be sent"),
        ));
    };
    frame[..LENGTH_BYTES].copy_from_slice(&announced.to_le_bytes());
    Ok(())
}

/// A postcard output that appends to a borrowed buffer.
struct Behind<'a>(&'a mut Vec<u8>);

impl Flavor for Behind<'_> {
    type Output = ();

    #[inline]
    fn try_extend(&mut self, bytes: &[u8]) -> postcard::Result<()> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    #[inline]
    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        self.0.push(byte);
        Ok(())
    }

    fn finalize(self) -> postcard::Result<()> {
        Ok(())
    }
}

/// Returns the end of the first frame in the received bytes, if the frame is complete.
///
/// # Errors
/// [`ErrorCode::BadMessage`] if it announces more than `most` bytes.
pub(crate) fn whole(come: &[u8], most: usize, peer: &str) -> Result<Option<usize>> {
    let Some(length) = come.first_chunk::<LENGTH_BYTES>() else {
        return Ok(None);
    };
    let length = u32::from_le_bytes(*length) as usize;
    if length > most {
        return Err(too_long(length, most, peer));
    }
    let end = LENGTH_BYTES + length;
    Ok((come.len() >= end).then_some(end))
}

/// Decodes a complete message.
pub(crate) fn decode<M: DeserializeOwned>(body: &[u8], peer: &str) -> Result<M> {
    let unreadable = |why: String| {
        Error::new(
            ErrorCode::BadMessage,
            format!("a message from {peer} can't be decoded: {why}"),
        )
        .hint("run the same version of ardea in all processes of the cluster")
    };
    match postcard::take_from_bytes(body) {
        Ok((message, [])) => Ok(message),
        Ok((_, rest)) => Err(unreadable(format!("{} bytes too many", rest.len()))),
        Err(error) => Err(unreadable(error.to_string())),
    }
}

/// Splits received bytes into frames. Its memory grows with the received bytes, not with announced
/// lengths.
#[derive(Debug, Default)]
pub(crate) struct FrameReader {
    buffer: Vec<u8>,
    /// Length of the frame returned last; the next call removes that frame.
    given: usize,
}

impl FrameReader {
    /// Returns the body of the next frame; `None` if the peer has closed its side between two
    /// frames. Cancel safe.
    pub(crate) async fn next(
        &mut self,
        from: &mut (impl AsyncRead + Unpin),
        most: usize,
        peer: &str,
    ) -> Result<Option<&[u8]>> {
        self.buffer.drain(..std::mem::take(&mut self.given));
        if self.buffer.is_empty() && self.buffer.capacity() > KEPT_BYTES {
            self.buffer = Vec::new();
        }
        loop {
            if let Some(end) = whole(&self.buffer, most, peer)? {
                self.given = end;
                return Ok(Some(&self.buffer[LENGTH_BYTES..end]));
            }
            self.buffer.reserve(READ_BYTES);
            match from.read_buf(&mut self.buffer).await {
                Ok(0) if self.buffer.is_empty() => return Ok(None),
                Ok(0) => return Err(connection_lost(peer, io::ErrorKind::UnexpectedEof.into())),
                Ok(_) => {}
                Err(error) => return Err(connection_lost(peer, error)),
            }
        }
    }

    /// Returns the received bytes that were not returned in frames.
    pub(crate) fn into_rest(mut self) -> Vec<u8> {
        self.buffer.drain(..self.given);
        self.buffer
    }
}

fn too_long(length: usize, most: usize, peer: &str) -> Error {
    Error::new(
        ErrorCode::BadMessage,
        format!("{peer} announces a message of {length} bytes, and {most} are allowed"),
    )
    .hint("check that this is a process of the cluster, and that either both or neither use TLS")
}

/// Creates the error of a connection that was lost in the middle of an operation.
pub(crate) fn connection_lost(peer: &str, error: io::Error) -> Error {
    Error::new(
        ErrorCode::Network,
        format!("the connection to {peer} was cut"),
    )
    .because(error)
    .hint("check the log of that process")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        runtime.unwrap().block_on(future)
    }

    proptest! {
        #[test]
        fn messages_come_out_as_they_went_in_wherever_the_bytes_are_cut(
            messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..20),
            piece in 1_usize..100,
        ) {
            let all: Vec<u8> = messages
                .iter()
                .flat_map(|message| Encoded::new(message).unwrap().bytes().to_vec())
                .collect();
            let got = block_on(async {
                let mut reader = Pieces { bytes: all, piece };
                let mut cutter = FrameReader::default();
                let mut got: Vec<Vec<u8>> = Vec::new();
                while let Some(body) = cutter.next(&mut reader, 1000, "peer").await.unwrap() {
                    got.push(decode(body, "peer").unwrap());
                }
                got
            });
            prop_assert_eq!(got, messages);
        }

        #[test]
        fn any_bytes_lead_to_messages_or_to_an_error(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            block_on(async {
                let mut reader = &bytes[..];
                let mut cutter = FrameReader::default();
                while let Ok(Some(body)) = cutter.next(&mut reader, 1 << 20, "peer").await {
                    let _ = decode::<(String, Vec<u64>)>(body, "peer");
                }
            });
        }
    }

    /// A reader that returns its bytes one piece at a time.
    struct Pieces {
        bytes: Vec<u8>,
        piece: usize,
    }

    impl AsyncRead for Pieces {
        fn poll_read(
            mut self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
            into: &mut tokio::io::ReadBuf<'_>,
        ) -> std::task::Poll<io::Result<()>> {
            let count = self.piece.min(self.bytes.len()).min(into.remaining());
            let taken: Vec<u8> = self.bytes.drain(..count).collect();
            into.put_slice(&taken);
            std::task::Poll::Ready(Ok(()))
        }
    }

    #[test]
    fn what_is_too_long_is_refused_before_it_has_come() {
        let mut reader: &[u8] = &[255, 255, 255, 255, 0];
        let mut cutter = FrameReader::default();
        let error = block_on(cutter.next(&mut reader, 100, "10.0.0.7:7")).unwrap_err();
        assert_eq!(error.code(), ErrorCode::BadMessage);
        assert!(error.to_string().contains("10.0.0.7:7"), "{error}");
        assert!(cutter.buffer.capacity() < 1 << 20);
    }

    #[test]
    fn a_message_that_was_cut_is_an_error_and_an_end_between_two_is_none() {
        let whole = Encoded::new("gate 7").unwrap();
        let mut cut = &whole.bytes()[..7];
        let error = block_on(FrameReader::default().next(&mut cut, 100, "peer")).unwrap_err();
        assert_eq!(error.code(), ErrorCode::Network);
        let mut nothing: &[u8] = &[];
        assert!(matches!(
            block_on(FrameReader::default().next(&mut nothing, 100, "peer")),
            Ok(None)
        ));
    }

    #[test]
    fn a_message_with_something_behind_it_is_none() {
        let error = decode::<u8>(&[7, 7], "peer").unwrap_err();
        assert_eq!(error.code(), ErrorCode::BadMessage);
    }
}
