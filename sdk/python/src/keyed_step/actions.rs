//! The actions that a function with state returns.

use std::time::Duration;

use ardea_core::Timestamp;
use ardea_operators::KeyedContext;
use pyo3::prelude::*;

use super::EmittedRow;

/// An action of a function: its kind, a value, and a time in microseconds. The kinds are those of
/// `ardea.keyed`.
pub(super) type Action = (u8, Py<PyAny>, Option<i64>);

const EMIT: u8 = 0;
const SET_TIMER: u8 = 1;
const CLEAR_TIMER: u8 = 2;
const SET_PROCESSING: u8 = 3;
const CLEAR_PROCESSING: u8 = 4;
const CLEAR_STATE: u8 = 5;

/// Carries out an action.
pub(super) fn apply((kind, value, micros): Action, context: &mut KeyedContext<'_, '_, EmittedRow>) {
    let time = micros.map(Timestamp::from_micros);
    match (kind, time) {
        (EMIT, None) => context.emit(EmittedRow(value)),
        (EMIT, Some(time)) => context.emit_at(EmittedRow(value), time),
        (SET_TIMER, Some(time)) => context.set_event_timer(time),
        (CLEAR_TIMER, Some(time)) => context.clear_event_timer(time),
        (SET_PROCESSING, Some(_)) => {
            let delay = micros.and_then(|micros| u64::try_from(micros).ok());
            context.set_processing_timer(Duration::from_micros(delay.unwrap_or_default()));
        }
        (CLEAR_PROCESSING, _) => context.clear_processing_timers(),
        (CLEAR_STATE, _) => context.clear_state(),
        _ => {}
    }
}
