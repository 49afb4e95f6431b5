//! The interface over real sockets, with a pretended cluster behind it.

mod client;
mod document;
mod hostile;
mod moving;
mod safe_by_default;
mod served;
