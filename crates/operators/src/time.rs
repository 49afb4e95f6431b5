//! Event time: timestamps of records and watermarks.

mod arrival;
mod emitter;
mod event_time;
mod generator;
mod native;
mod policy;
mod replay;
mod stamp;

pub use arrival::ArrivalTimeP;
pub use event_time::EventTime;
pub(crate) use event_time::require_times;
pub use native::NativeTimeP;
pub use policy::WatermarkPolicy;
pub use replay::ReplayP;
pub use stamp::StampP;
