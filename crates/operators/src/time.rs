//! Event time: timestamps of records and watermarks.

mod arrival;
mod emitter;
mod event_time;
mod generator;
mod native;
mod replay;
mod stamp;

pub use ardea_core::WatermarkPolicy;
pub use arrival::ArrivalTimeP;
pub use emitter::WatermarkEmitter;
pub use event_time::{EventTime, require_times};
pub use native::NativeTimeP;
pub use replay::ReplayP;
pub use stamp::StampP;
