//! Tests of framing: lines, quoted fields, limits, recovery.

use super::*;
use proptest::prelude::*;

const CSV: Framing = Framing::Quoted {
    quote: b'"',
    delimiter: b',',
};

/// Returns a framer with a limit of `max` bytes for frames and quoted fields.
fn limited(framing: Framing, max: usize, read_size: usize) -> Framer {
    let limits = Limits {
        frame: max,
        quoted: max,
    };
    Framer::new(framing, limits, read_size)
}

/// Returns all frames of `input`, read in pieces of `piece` bytes.
fn frames(
    framing: Framing,
    max: usize,
    input: &[u8],
    piece: usize,
) -> Vec<(String, u64, Option<FramingError>)> {
    let mut framer = limited(framing, max, 4);
    let mut all = Vec::new();
    let mut pieces = input.chunks(piece);
    loop {
        while let Some(frame) = framer.next() {
            let text = String::from_utf8_lossy(frame.bytes).into_owned();
            all.push((text, frame.lines, frame.fault));
        }
        if framer.ended {
            return all;
        }
        match pieces.next() {
            None => framer.end(),
            Some(mut piece) => {
                while !piece.is_empty() {
                    framer.fill(&mut piece).unwrap();
                    if !piece.is_empty() {
                        // Takes the available frames before the next read, as sources do.
                        while let Some(frame) = framer.next() {
                            let text = String::from_utf8_lossy(frame.bytes).into_owned();
                            all.push((text, frame.lines, frame.fault));
                        }
                    }
                }
            }
        }
    }
}

fn texts(framing: Framing, input: &str) -> Vec<String> {
    frames(framing, 1 << 20, input.as_bytes(), 7)
        .into_iter()
        .map(|(text, ..)| text)
        .collect()
}

#[test]
fn a_last_line_without_newline_is_a_frame() {
    assert_eq!(texts(Framing::Lines, "a\n\nbc"), ["a", "", "bc"]);
    assert_eq!(texts(Framing::Lines, "a\n"), ["a"]);
    assert!(texts(Framing::Lines, "").is_empty());
}

#[test]
fn newlines_in_quotes_do_not_end_a_record() {
    let all = frames(CSV, 1 << 20, b"a,\"b\nc\"\"\n\",d\ne,f\"g\nh\n", 3);
    let texts: Vec<_> = all
        .iter()
        .map(|(text, lines, _)| (text.as_str(), *lines))
        .collect();
    assert_eq!(texts, [("a,\"b\nc\"\"\n\",d", 3), ("e,f\"g", 1), ("h", 1)]);
}

#[test]
fn an_unclosed_quote_costs_one_line_only() {
    let all = frames(CSV, 1 << 20, b"a,b\n\"x,1\nc,d\ne,f", 5);
    assert_eq!(
        all[1],
        ("\"x,1".to_string(), 1, Some(FramingError::Unclosed))
    );
    let rest: Vec<_> = all[2..]
        .iter()
        .map(|(text, _, fault)| (text.as_str(), *fault))
        .collect();
    assert_eq!(rest, [("c,d", None), ("e,f", None)]);
}

#[test]
fn a_frame_over_the_limit_is_passed_over_in_bounded_memory() {
    let mut framer = limited(Framing::Lines, 1000, 16);
    let mut input = vec![b'x'; 50 << 20];
    input.extend_from_slice(b"\nnext\n");
    let mut rest = &input[..];
    let mut seen = Vec::new();
    while framer.fill(&mut rest).unwrap() > 0 {
        while let Some(frame) = framer.next() {
            seen.push((frame.bytes.len(), frame.fault));
        }
    }
    assert_eq!(
        seen,
        [(1001, Some(FramingError::Overlong(50 << 20))), (4, None)]
    );
    assert!(framer.buffer.len() <= 1000 + SLACK);
}

#[test]
fn a_frame_at_the_limit_passes_and_one_byte_more_does_not() {
    for piece in 1..9 {
        let all = frames(Framing::Lines, 4, b"1234\n12345\n1\n12345", piece);
        let faults: Vec<_> = all.iter().map(|(_, _, fault)| *fault).collect();
        let over = Some(FramingError::Overlong(5));
        assert_eq!(faults, [None, over, None, over], "in pieces of {piece}");
    }
}

/// Returns the frames of `input` from a position after `count` frames, and that position.
fn resumed(
    framing: Framing,
    max: usize,
    input: &[u8],
    piece: usize,
    count: usize,
) -> (Vec<String>, StreamPosition) {
    let mut framer = limited(framing, max, piece);
    let mut reader = input;
    let (mut seen, mut lines) = (0, 0);
    while seen < count {
        if let Some(frame) = framer.next() {
            seen += 1;
            lines += frame.lines;
        } else if framer.ended {
            break;
        } else if framer.fill(&mut reader).unwrap() == 0 {
            framer.end();
        }
    }
    let place = framer.place(lines + 1);
    assert_eq!(place.offset, framer.offset());
    let from = place.offset as usize;
    assert!(input[..from].ends_with(&place.before));
    let mut again = limited(framing, max, piece);
    again.begin_at(&place);
    let mut reader = &input[from..];
    let mut rest = Vec::new();
    loop {
        if let Some(frame) = again.next() {
            rest.push(String::from_utf8_lossy(frame.bytes).into_owned());
        } else if again.ended {
            return (rest, place);
        } else if again.fill(&mut reader).unwrap() == 0 {
            again.end();
        }
    }
}

proptest! {
    #[test]
    fn from_any_place_the_rest_is_the_same(
        input in "[ab,\"\n]{0,80}", piece in 1usize..20, quoted in any::<bool>(), count in 0usize..12,
        max in 3usize..90,
    ) {
        let framing = if quoted { CSV } else { Framing::Lines };
        let whole = frames(framing, max, input.as_bytes(), piece);
        let (rest, place) = resumed(framing, max, input.as_bytes(), piece, count);
        let passed = &whole[..count.min(whole.len())];
        let lines: u64 = passed.iter().map(|(_, lines, _)| lines).sum();
        prop_assert_eq!(place.line, lines + 1);
        let expected: Vec<_> = whole[passed.len()..].iter().map(|(text, ..)| text.clone()).collect();
        prop_assert_eq!(rest, expected);
    }

    #[test]
    fn any_cut_of_the_input_gives_the_same_frames(
        input in "[ab,\"\n\u{0} ]{0,80}", piece in 1usize..20, quoted in any::<bool>(), max in 3usize..90,
    ) {
        let framing = if quoted { CSV } else { Framing::Lines };
        let cut = frames(framing, max, input.as_bytes(), piece);
        prop_assert_eq!(cut, frames(framing, max, input.as_bytes(), input.len().max(1)));
        let whole = frames(framing, 1 << 20, input.as_bytes(), piece);
        let is_padded = input.rsplit('\n').next().is_some_and(|last| {
            !last.is_empty() && last.bytes().all(|byte| byte == 0)
        });
        prop_assume!(!is_padded);
        let lines: u64 = whole.iter().map(|(_, lines, _)| lines).sum();
        prop_assert_eq!(lines as usize, input.lines().count().max(input.split_terminator('\n').count()));
    }
}
/// Returns the frames of CSV records with `fields` fields: text, number of lines, and true if
/// faulty.
fn records(fields: usize, input: &str, piece: usize) -> Vec<(String, u64, bool)> {
    let mut framer = limited(CSV, 1 << 20, piece);
    framer.expect_fields(Some(fields));
    let (mut reader, mut all) = (input.as_bytes(), Vec::new());
    loop {
        if let Some(frame) = framer.next() {
            let text = String::from_utf8_lossy(frame.bytes).into_owned();
            all.push((text, frame.lines, frame.fault.is_some()));
        } else if framer.ended {
            return all;
        } else if framer.fill(&mut reader).unwrap() == 0 {
            framer.end();
        }
    }
}

/// Compares frames with the `expected` texts. A leading `!` marks a frame with a fault.
fn expect_records(fields: usize, input: &str, expected: &[&str]) {
    for piece in [1, 2, 5, 1000] {
        let all = records(fields, input, piece);
        let seen: Vec<String> = all
            .iter()
            .map(|(text, _, is_bad)| format!("{}{text}", if *is_bad { "!" } else { "" }))
            .collect();
        assert_eq!(seen, expected, "in pieces of {piece}");
        let lines: u64 = all.iter().map(|(_, lines, _)| lines).sum();
        assert_eq!(lines as usize, input.lines().count());
    }
}

#[test]
fn behind_an_open_quote_reading_goes_on_with_the_next_line_that_makes_sense() {
    let cases: [(&str, &[&str]); 9] = [
        // Text after a later quote shows that the first quote is stray.
        (
            "1,\"a\n2,b\n3,\"c\"\n4,d\n",
            &["!1,\"a", "2,b", "3,\"c\"", "4,d"],
        ),
        (
            "1,\"a\r\n2,b\r\n3,\"c\"\r\n",
            &["!1,\"a\r", "2,b\r", "3,\"c\"\r"],
        ),
        // The field closes, but the record has too many fields.
        (
            "1,\"a\n2,b\n3,\",c\"\n4,d\n",
            &["!1,\"a", "2,b", "3,\",c\"", "4,d"],
        ),
        // The field is never closed.
        ("1,\"a\n2,b\n3,c\n", &["!1,\"a", "2,b", "3,c"]),
        ("1,a\n2,\"b", &["1,a", "!2,\"b"]),
        // The lines of a malformed multi-line field are set aside with its record.
        (
            "1,\"many\nlines\" of, text\n2,b\n",
            &["!1,\"many\nlines\" of, text", "2,b"],
        ),
        // A record of several lines is plausible as well.
        (
            "1,\"a\n2,\"two\nlines\"\n3,c\n",
            &["!1,\"a", "2,\"two\nlines\"", "3,c"],
        ),
        // Two records in a row have an unclosed quote.
        ("1,\"a\n2,\"b\n3,c\n", &["!1,\"a\n2,\"b", "3,c"]),
        // Within one line only that line is lost.
        (
            "1,\"a\"b\n2,\"c\" \n3,d\n",
            &["!1,\"a\"b", "2,\"c\" ", "3,d"],
        ),
    ];
    for (input, expected) in cases {
        expect_records(2, input, expected);
    }
}

#[test]
fn a_quoted_field_behind_a_byte_order_mark_is_one() {
    let input = "\u{feff}\"a\nb\",c\n1,\"2\"\n";
    expect_records(2, input, &["\u{feff}\"a\nb\",c", "1,\"2\""]);
}

#[test]
fn a_quoted_field_that_spans_lines_is_bounded_and_one_in_a_line_is_not() {
    let limits = Limits {
        frame: 1000,
        quoted: 20,
    };
    let long = "x".repeat(500);
    let input = format!("a,\"{long}\"\nb,\"open\n{}last,1\n", "row,1\n".repeat(50));
    let mut framer = Framer::new(CSV, limits, 64);
    let (mut reader, mut all) = (input.as_bytes(), Vec::new());
    loop {
        if let Some(frame) = framer.next() {
            all.push((frame.bytes.len(), frame.fault));
        } else if framer.fill(&mut reader).unwrap() == 0 {
            break;
        }
    }
    assert_eq!(all.len(), 53);
    assert_eq!(all[0], (504, None));
    assert_eq!(all[1], (7, Some(FramingError::OpenTooLong(20))));
    assert!(all[2..].iter().all(|(_, fault)| fault.is_none()));
}

#[test]
fn open_quotes_in_every_line_take_bounded_memory_and_come_out_again() {
    let input = "1,\"a\n".repeat(200_000);
    let mut framer = limited(CSV, 10_000, 4096);
    let (mut reader, mut lines) = (input.as_bytes(), 0);
    loop {
        if let Some(frame) = framer.next() {
            assert!(frame.fault.is_some());
            lines += frame.lines;
        } else if framer.ended {
            break;
        } else if framer.fill(&mut reader).unwrap() == 0 {
            framer.end();
        }
    }
    assert_eq!(lines, 200_000);
    assert!(framer.buffer.len() <= 10_000 + 3 * SLACK);
}

#[test]
fn a_hole_costs_the_record_that_it_is_in_and_one_at_the_end_costs_none() {
    let hole = "\0".repeat(5000);
    let faults = |framing, input: &str| -> Vec<(usize, Option<FramingError>)> {
        let all = frames(framing, 2000, input.as_bytes(), 100);
        let whole = frames(framing, 1 << 20, input.as_bytes(), 100);
        assert_eq!(all.len(), whole.len());
        whole
            .into_iter()
            .map(|(text, _, fault)| (text.len(), fault))
            .collect()
    };
    for framing in [Framing::Lines, CSV] {
        let input = format!("one\ntw{hole}ree\nfour\n{hole}");
        let expected = [(3, None), (5005, Some(FramingError::Hole)), (4, None)];
        assert_eq!(faults(framing, &input), expected);
        // A few zeros may be intended.
        assert_eq!(faults(framing, "a\0\0b\n\0"), [(4, None)]);
    }
    // The hole contains the end of a quoted field.
    let input = format!("1,\"tw{hole}ree\n2,four\n3,\"five\"\n");
    let faults = faults(CSV, &input);
    assert_eq!(faults[0].1, Some(FramingError::Hole));
    assert_eq!(faults[1..], [(6, None), (8, None)]);
}
