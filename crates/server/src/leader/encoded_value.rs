//! The encodings of values in the metadata store: compressed binary values with a header, and JSON
//! of bounded size.

use std::io::Read;

use ardea_core::{Error, ErrorCode, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Maximum unpacked size, so that a damaged value cannot exhaust the memory.
const MOST_UNPACKED_BYTES: u64 = 256 << 20;

const ZSTD_LEVEL: i32 = 3;

/// Maximum size of a value encoded by [`encode_bounded`], in bytes.
pub(crate) const MOST_JSON_BYTES: usize = 64 << 10;

/// Encodes `body` as `header`, followed by zstd of postcard. `name` is the name of the value in the
/// error.
///
/// # Errors
///
/// [`ErrorCode::Internal`] if the value can't be encoded.
pub(crate) fn pack(name: &str, header: &[u8], body: &impl Serialize) -> Result<Vec<u8>> {
    let packed = postcard::to_stdvec(body).map_err(|error| cannot_encode(name, error));
    let packed = zstd::bulk::compress(&packed?, ZSTD_LEVEL);
    let packed = packed.map_err(|error| cannot_encode(name, error))?;
    Ok([header, &packed].concat())
}

/// Decodes the part of a [packed](pack) value after its header.
pub(crate) fn unpack<T: DeserializeOwned>(
    packed: &[u8],
) -> Result<T, Box<dyn std::error::Error + Send + Sync>> {
    let mut body = Vec::new();
    let decoder = zstd::stream::read::Decoder::new(packed)?;
    decoder.take(MOST_UNPACKED_BYTES).read_to_end(&mut body)?;
    Ok(postcard::from_bytes(&body)?)
}

/// Encodes `value` as JSON. While the JSON is larger than [`MOST_JSON_BYTES`], `halve` removes half
/// of the value's lists; it returns true if they are empty. `name` is the name of the value in the
/// error.
///
/// # Errors
///
/// [`ErrorCode::Internal`] if the value can't be encoded.
pub(crate) fn encode_bounded<T: Serialize>(
    name: &str,
    value: &mut T,
    halve: impl Fn(&mut T) -> bool,
) -> Result<Vec<u8>> {
    let mut is_short = false;
    loop {
        let json = serde_json::to_vec(value).map_err(|error| cannot_encode(name, error))?;
        if json.len() <= MOST_JSON_BYTES || is_short {
            return Ok(json);
        }
        is_short = halve(value);
    }
}

fn cannot_encode(name: &str, why: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::new(ErrorCode::Internal, format!("{name} can't be encoded")).because(why)
}
