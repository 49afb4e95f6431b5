//! Messages as bytes: a length, and what postcard makes of them.

use std::io;

use ardea_core::{Error, ErrorCode, Result};
use bytes::Bytes;
use postcard::ser_flavors::{Flavor, Size};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncReadExt};

/// How long the length is, in bytes.
pub(crate) const LENGTH_BYTES: usize = 4;

/// How much is read at a time, in bytes.
const READ_BYTES: usize = 16 << 10;

/// What a buffer may keep when it is empty, in bytes.
const KEPT_BYTES: usize = 256 << 10;

/// A message as it travels. Cheap to clone: what goes to many is encoded once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Encoded(Bytes);

impl Encoded {
    /// Encodes a message.
    ///
    /// # Errors
    /// [`ErrorCode::LimitReached`] if it is 4 GiB or longer; [`ErrorCode::Internal`] if its type can't be serialised.
    pub fn new<M: Serialize + ?Sized>(message: &M) -> Result<Self> {
        // A long one would be moved again and again while its memory grows; to look at a short one twice costs less than its memory.
        let body_bytes = postcard::serialize_with_flavor(message, Size::default());
        let mut bytes = Vec::with_capacity(LENGTH_BYTES + body_bytes.unwrap_or_default());
        write(message, &mut bytes)?;
        Ok(Encoded(bytes.into()))
    }

    /// Writes the length in front of a body that begins behind room for it.
    pub(crate) fn framed(mut bytes: Vec<u8>) -> Result<Self> {
        announce(&mut bytes)?;
        Ok(Encoded(bytes.into()))
    }

    /// The frame.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// How long the message is, in bytes, without its length.
    pub fn body_bytes(&self) -> usize {
        self.0.len() - LENGTH_BYTES
    }
}

/// Writes a message behind what is there, as it travels.
///
/// # Errors
/// [`ErrorCode::LimitReached`] if it is 4 GiB or longer; [`ErrorCode::Internal`] if its type can't be serialised. Then nothing was written.
pub fn write<M: Serialize + ?Sized>(message: &M, out: &mut Vec<u8>) -> Result<()> {
    let start = out.len();
    out.extend([0; LENGTH_BYTES]);
    let written = postcard::serialize_with_flavor(message, Behind(out)).map_err(|error| {
        Error::new(ErrorCode::Internal, "a message can't be encoded").because(error)
    });
    let announced = written.and_then(|()| announce(&mut out[start..]));
    announced.inspect_err(|_| out.truncate(start))
}

/// Writes the length of a body in front of it, where there is room for it.
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

/// Writes behind somebody's bytes, without taking them.
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

/// Where the first frame of what has come ends, if all of it has.
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

/// Decodes a whole message.
pub(crate) fn decode<M: DeserializeOwned>(body: &[u8], peer: &str) -> Result<M> {
    let unreadable = |why: String| {
        Error::new(
            ErrorCode::BadMessage,
            format!("a message of {peer} can't be read: {why}"),
        )
        .hint("run the same version of ardea in all processes of the cluster")
    };
    match postcard::take_from_bytes(body) {
        Ok((message, [])) => Ok(message),
        Ok((_, rest)) => Err(unreadable(format!("{} bytes too many", rest.len()))),
        Err(error) => Err(unreadable(error.to_string())),
    }
}

/// Cuts what comes into frames. Its memory grows with what has come, not with what was announced.
#[derive(Debug, Default)]
pub(crate) struct Cutter {
    buffer: Vec<u8>,
    /// The frame given out last, which goes when the next one is asked for.
    given: usize,
}

impl Cutter {
    /// The body of the next frame; `None` if the peer has closed its side between two frames. May be dropped while it waits.
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
                Ok(0) => return Err(cut_off(peer, io::ErrorKind::UnexpectedEof.into())),
                Ok(_) => {}
                Err(error) => return Err(cut_off(peer, error)),
            }
        }
    }

    /// What has come and was not given out.
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
    .hint("is that a process of the cluster, and do both use TLS, or neither?")
}

/// The connection is gone in the middle of something.
pub(crate) fn cut_off(peer: &str, error: io::Error) -> Error {
    Error::new(
        ErrorCode::Network,
        format!("the connection to {peer} was cut"),
    )
    .because(error)
    .hint("look at the log of that process")
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
                let mut cutter = Cutter::default();
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
                let mut cutter = Cutter::default();
                while let Ok(Some(body)) = cutter.next(&mut reader, 1 << 20, "peer").await {
                    let _ = decode::<(String, Vec<u64>)>(body, "peer");
                }
            });
        }
    }

    /// Gives its bytes a piece at a time.
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
        let mut cutter = Cutter::default();
        let error = block_on(cutter.next(&mut reader, 100, "10.0.0.7:7")).unwrap_err();
        assert_eq!(error.code(), ErrorCode::BadMessage);
        assert!(error.to_string().contains("10.0.0.7:7"), "{error}");
        assert!(cutter.buffer.capacity() < 1 << 20);
    }

    #[test]
    fn a_message_that_was_cut_is_an_error_and_an_end_between_two_is_none() {
        let whole = Encoded::new("gate 7").unwrap();
        let mut cut = &whole.bytes()[..7];
        let error = block_on(Cutter::default().next(&mut cut, 100, "peer")).unwrap_err();
        assert_eq!(error.code(), ErrorCode::Network);
        let mut nothing: &[u8] = &[];
        assert!(matches!(
            block_on(Cutter::default().next(&mut nothing, 100, "peer")),
            Ok(None)
        ));
    }

    #[test]
    fn a_message_with_something_behind_it_is_none() {
        let error = decode::<u8>(&[7, 7], "peer").unwrap_err();
        assert_eq!(error.code(), ErrorCode::BadMessage);
    }
}
