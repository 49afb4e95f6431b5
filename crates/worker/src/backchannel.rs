//! Transport of side-channel messages between the instances of different containers.
//!
//! For each other container, a sender and a receiver tasklet run as a separate job on the same
//! threads. The sender collects the messages for instances of that container and sends them over
//! one stream, shared by all side channels. The receiver delivers the messages that arrive from it.

mod messages;
mod receiver;
mod router;
mod sender;

#[cfg(test)]
pub(crate) use messages::BackchannelCodec;
pub(crate) use router::BackchannelRouter;
