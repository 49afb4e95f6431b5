//! JSON lines: one JSON value a line.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Decode, Encode};

/// One JSON value a line, to and from any serde type; blank lines are passed over.
#[derive(Clone, Copy, Debug, Default)]
pub struct JsonLines;

impl<T: DeserializeOwned> Decode<T> for JsonLines {
    #[inline]
    fn decode(&mut self, frame: &[u8]) -> Result<Option<T>, String> {
        match serde_json::from_slice(frame) {
            Ok(record) => Ok(Some(record)),
            Err(_) if frame.trim_ascii().is_empty() => Ok(None),
            Err(error) => Err(format!("not the JSON expected: {error}")),
        }
    }
}

impl<T: Serialize> Encode<T> for JsonLines {
    #[inline]
    fn encode(&mut self, record: &T, out: &mut Vec<u8>) -> Result<(), String> {
        serde_json::to_writer(&mut *out, record).map_err(|error| error.to_string())?;
        out.push(b'\n');
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_comes_back_as_it_went() {
        let mut out = Vec::new();
        JsonLines.encode(&("a\nb", 7), &mut out).unwrap();
        assert_eq!(out, b"[\"a\\nb\",7]\n");
        let back: Option<(String, i32)> = JsonLines.decode(&out[..out.len() - 1]).unwrap();
        assert_eq!(back, Some(("a\nb".to_string(), 7)));
    }

    #[test]
    fn a_blank_line_is_no_record_and_half_a_value_is_an_error() {
        assert_eq!(Decode::<i32>::decode(&mut JsonLines, b" \t"), Ok(None));
        assert!(Decode::<Vec<i32>>::decode(&mut JsonLines, b"[1,").is_err());
    }
}
