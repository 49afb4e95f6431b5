//! The checks of spouts and bolts.

use std::collections::HashSet;

use ardea_core::Watermark;
use serde_json::Value;

use super::cases::{Case, Verdict, passed, with_ready};
use super::{CheckHost, CheckSettings};
use crate::protocol::{
    EmitReader, FLAG_MORE, FrameHead, FrameType, InstanceFrame, PendingRow, SPOUT_IS_DONE,
    write_message_outcomes,
};

/// The limit of tuples of a NEXT.
const LIMIT: u32 = 10;
/// The maximum number of NEXT without a tuple.
const EMPTY_ANSWERS: u64 = 100;

pub(super) const OF_SPOUTS: &[(&str, Case)] = &[("next", next_tuples), ("acks", acks)];
pub(super) const OF_BOLTS: &[(&str, Case)] = &[("tick", tick), ("finish", finish)];

/// Requests tuples once. Returns the message id of each tuple, and the wait in milliseconds.
pub(super) fn next(
    settings: &CheckSettings,
    host: &mut CheckHost,
    sequence: u64,
) -> Result<(Vec<Option<u64>>, i32), String> {
    let head = FrameHead::new(FrameType::Next, sequence);
    host.send(&InstanceFrame::new(head, LIMIT.to_le_bytes().to_vec()))?;
    let mut tuples = Vec::new();
    let end = emitted(settings, host, sequence, &mut |anchors| {
        match anchors {
            [] => tuples.push(None),
            [message] => tuples.push(Some(message.batch)),
            more => return Err(format!("a tuple has {} message ids", more.len())),
        }
        match tuples.len() > LIMIT as usize {
            true => Err(format!("it emitted more than the {LIMIT} requested tuples")),
            false => Ok(()),
        }
    })?;
    match end {
        EmitEnd::Complete(wait) if wait < SPOUT_IS_DONE => Err(format!("its wait is {wait} ms")),
        EmitEnd::Complete(wait) => Ok((tuples, wait)),
        EmitEnd::Other(frame) => Err(host.unexpected(&frame, FrameType::Emit)),
    }
}

/// Checks that a tuple is an array or a direct tuple, and that its stream was declared.
fn check_tuple(settings: &CheckSettings, tuple: &[u8]) -> Result<(), String> {
    let text = || String::from_utf8_lossy(tuple).into_owned();
    let read: Option<Value> = serde_json::from_slice(tuple).ok();
    let (stream, values) = match &read {
        Some(Value::Array(values)) => (
            values.first().and_then(Value::as_u64),
            values.len().saturating_sub(1),
        ),
        Some(Value::Object(direct)) => {
            let values = direct.get("values").and_then(Value::as_array);
            let stream = direct.get("stream").and_then(Value::as_u64);
            (stream, values.map_or(0, Vec::len))
        }
        _ => return Err(format!("{:?} is no tuple", text())),
    };
    let stream = stream.and_then(|stream| settings.outputs.get(stream as usize));
    match stream {
        None => Err(format!("{:?} names no declared stream", text())),
        Some(stream) if stream.fields.len() != values => Err(format!(
            "{:?} has {values} values, and the stream {} fields",
            text(),
            stream.fields.len()
        )),
        Some(_) => Ok(()),
    }
}

fn next_tuples(settings: &CheckSettings, lines: &mut Vec<String>) -> Verdict {
    with_ready(settings, lines, |host, _| {
        for sequence in 1..=EMPTY_ANSWERS {
            let (tuples, wait) = next(settings, host, sequence)?;
            if !tuples.is_empty() || wait != 0 {
                let tracked = tuples.iter().flatten().count();
                return passed(format!(
                    "{} tuples, {tracked} of them tracked, then a wait of {wait} ms",
                    tuples.len()
                ));
            }
        }
        Err(format!("{EMPTY_ANSWERS} answers have no tuple and no wait"))
    })
}

fn acks(settings: &CheckSettings, lines: &mut Vec<String>) -> Verdict {
    with_ready(settings, lines, |host, _| {
        let (tuples, _) = next(settings, host, 1)?;
        let messages: HashSet<u64> = tuples.into_iter().flatten().collect();
        let mut outcomes: Vec<(u64, bool)> = messages
            .iter()
            .enumerate()
            .map(|(at, message)| (*message, at.is_multiple_of(2)))
            .collect();
        // A message of an earlier process.
        outcomes.push((u64::MAX - 1, true));
        let head = FrameHead::new(FrameType::Acks, 0);
        host.send(&InstanceFrame::new(head, write_message_outcomes(&outcomes)))?;
        next(settings, host, 2)?;
        passed(format!(
            "{} outcomes, one of an unknown message",
            outcomes.len()
        ))
    })
}

/// The end of a series of EMIT frames.
enum EmitEnd {
    /// A frame without the flag `more`; its wait in milliseconds.
    Complete(i32),
    /// A frame of another type.
    Other(InstanceFrame),
}

/// Receives EMIT frames of `sequence`, until the one without the flag `more` or another frame.
/// Passes the anchors of each tuple to `take`.
fn emitted(
    settings: &CheckSettings,
    host: &mut CheckHost,
    sequence: u64,
    take: &mut dyn FnMut(&[PendingRow]) -> Result<(), String>,
) -> Result<EmitEnd, String> {
    loop {
        let Some(frame) = host.next_frame()? else {
            return Err(host.ended(FrameType::Emit));
        };
        if frame.head.kind != FrameType::Emit {
            return Ok(EmitEnd::Other(frame));
        }
        if frame.head.sequence != sequence {
            let got = frame.head.sequence;
            return Err(format!(
                "an EMIT has the sequence {got} instead of {sequence}"
            ));
        }
        let mut reader = EmitReader::read(&frame.payload).map_err(|it| it.to_string())?;
        while let Some(tuple) = reader.next_tuple().map_err(|it| it.to_string())? {
            check_tuple(settings, tuple.value)?;
            take(&tuple.anchors)?;
        }
        let wait = reader.wait_millis().map_err(|it| it.to_string())?;
        if !frame.head.has(FLAG_MORE) {
            return Ok(EmitEnd::Complete(wait));
        }
    }
}

/// Receives EMIT frames of a bolt as [`emitted`]. Returns the number of tuples and the end.
fn counted(
    settings: &CheckSettings,
    host: &mut CheckHost,
    sequence: u64,
) -> Result<(usize, EmitEnd), String> {
    let mut tuples = 0;
    let end = emitted(settings, host, sequence, &mut |_| {
        tuples += 1;
        Ok(())
    })?;
    Ok((tuples, end))
}

fn tick(settings: &CheckSettings, lines: &mut Vec<String>) -> Verdict {
    with_ready(settings, lines, |host, _| {
        host.send(&InstanceFrame::empty(FrameType::Tick, 1))?;
        match counted(settings, host, 1)? {
            (tuples, EmitEnd::Complete(_)) => passed(format!("answered with {tuples} tuples")),
            (_, EmitEnd::Other(frame)) => Err(host.unexpected(&frame, FrameType::Emit)),
        }
    })
}

fn finish(settings: &CheckSettings, lines: &mut Vec<String>) -> Verdict {
    with_ready(settings, lines, |host, _| {
        let end = Watermark::END.0.as_micros() as u64;
        host.send(&InstanceFrame::empty(FrameType::Watermark, end))?;
        match counted(settings, host, end)? {
            (tuples, EmitEnd::Other(frame)) if frame.head.kind == FrameType::Watermark => {
                passed(format!("returned the end after {tuples} tuples"))
            }
            (_, EmitEnd::Other(frame)) => Err(host.unexpected(&frame, FrameType::Watermark)),
            (_, EmitEnd::Complete(_)) => Err("an EMIT before WATERMARK lacks the flag 1".into()),
        }
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::command::InstanceCommand;
    use crate::protocol::{ComponentOutput, InstanceRole};

    #[test]
    fn documents_that_are_no_tuples_of_a_stream_are_named() {
        let settings = CheckSettings {
            command: InstanceCommand::new("true"),
            records: Vec::new(),
            key: None,
            timeout: Duration::ZERO,
            role: InstanceRole::Bolt,
            outputs: vec![ComponentOutput {
                stream: "default".into(),
                fields: vec!["word".into()],
                direct: false,
            }],
        };
        assert_eq!(check_tuple(&settings, br#"[0,"to"]"#), Ok(()));
        for (document, reason) in [
            ("[]", "no declared stream"),
            ("[1,2]", "no declared stream"),
            ("[0]", "has 0 values"),
            ("7", "no tuple"),
        ] {
            let refused = check_tuple(&settings, document.as_bytes()).unwrap_err();
            assert!(refused.contains(reason), "{document}: {refused}");
        }
    }
}
