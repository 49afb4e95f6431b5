//! Records as bytes: the form in which joins keep single records.

mod encoded;
mod layout;
mod reader;
mod writer;

#[cfg(test)]
mod tests;

pub(crate) use encoded::{EncodedRecord, KeyedRecord};
pub(crate) use layout::{RecordEncoder, RecordLayout};
