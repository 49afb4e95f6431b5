//! Tests of damaged files and of bad records.

use std::fs;
use std::io::Write;

use ardea_core::{ErrorCode, OnError};

use super::tests::{Flight, file, numbers};
use super::*;
use crate::OnDamage;
use crate::testing::{Driven, context, error_contains, gzip, stateful_context};

#[test]
fn a_compressed_file_that_is_damaged_fails_the_job_or_keeps_its_whole_lines_with_one_letter() {
    let text = numbers(20_000);
    let whole: Vec<&str> = text.lines().collect();
    let zstd = zstd::encode_all(text.as_bytes(), 1).unwrap();
    for (name, content) in [("x.gz", gzip(text.as_bytes())), ("x.zst", zstd)] {
        // A truncation in the middle loses the data that cannot be decompressed; a truncation just
        // before the checksum loses no line.
        for snapshot in [content.len() / 2, content.len() - 3] {
            let (_dir, path) = file(name, &content[..snapshot]);
            let mut driven = Driven::start(lines(&path).on_damage(OnDamage::Keep));
            driven.run().unwrap();
            let got = driven.values();
            assert_eq!(got, whole[..got.len()], "{name}");
            assert!(got.len() > 1000, "{name}: {} lines", got.len());
            let letters = driven.letters();
            assert_eq!(letters.len(), 1, "{letters:?}");
            assert!(
                letters[0].0.ends_with(&format!("{name}:{}", got.len() + 1)),
                "{letters:?}"
            );
            assert!(letters[0].1.contains("cut off"), "{letters:?}");

            // The policy for single records does not apply here.
            let mut strict = Driven::start(lines(&path).on_error(OnError::Drop));
            let error = strict.run().err().expect("an error");
            assert_eq!(error.code(), ErrorCode::ReadFailed);
            let read = format!("{} lines had been read", got.len());
            assert!(
                error_contains(&error, &[name, "cut off", &read, "bytes"]),
                "{error}"
            );
            assert_eq!(strict.records.len(), got.len(), "they come out first");
        }
        let garbage = [&content[..], b"garbage"].concat();
        let (_dir, path) = file(name, garbage);
        let error = Driven::start(lines(&path)).run().err().expect("an error");
        assert!(
            error_contains(&error, &[name, "behind member 1", "20000 lines"]),
            "{error}"
        );
        let padded = [&content[..], &[0; 1000]].concat();
        let (_dir, path) = file(name, padded);
        assert_eq!(
            Driven::start(lines(&path)).run().unwrap().records.len(),
            20_000
        );
    }
}

#[test]
fn behind_a_damaged_file_that_is_kept_the_next_one_is_read() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.gz"), "").unwrap();
    fs::write(dir.path().join("b"), "x").unwrap();
    let mut driven = Driven::start(lines(dir.path()).on_damage(OnDamage::Keep));
    assert_eq!(driven.run().unwrap().values(), ["x"]);
    assert_eq!(driven.letters().len(), 1);
    assert_eq!(driven.context.metrics.snapshot().bad, 1);
    let error = Driven::start(lines(dir.path()))
        .run()
        .err()
        .expect("an error");
    assert!(error_contains(&error, &["a.gz", "0 lines"]), "{error}");
}

#[test]
fn a_file_that_shrinks_or_is_rewritten_while_it_is_read_is_damaged() {
    let text = numbers(200_000);
    for (content, why) in [
        (text[..100].to_string(), "shorter"),
        (text[..text.len() - 100].to_string(), "shorter"),
        (text.replace("line", "LINE"), "rewritten"),
    ] {
        for on_damage in [OnDamage::Fail, OnDamage::Keep] {
            let (_dir, path) = file("in", &text);
            let mut driven = Driven::start(lines(&path).on_damage(on_damage));
            driven.run_until_records(10);
            let mut file = fs::OpenOptions::new().write(true).open(&path).unwrap();
            file.set_len(0).unwrap();
            file.write_all(content.as_bytes()).unwrap();
            match driven.run() {
                Err(error) => {
                    assert_eq!(error.code(), ErrorCode::ReadFailed);
                    assert!(
                        error_contains(&error, &["in", why, "lines had been read"]),
                        "{error}"
                    );
                    assert_eq!(on_damage, OnDamage::Fail);
                }
                Ok(_) => {
                    assert_eq!(on_damage, OnDamage::Keep);
                    assert!(
                        driven.letters()[0].1.contains(why),
                        "{:?}",
                        driven.letters()
                    );
                }
            }
            assert!(
                driven
                    .values()
                    .into_iter()
                    .all(|line| line.starts_with("line "))
            );
        }
    }
}

#[test]
fn a_header_that_can_not_be_read_is_damage_of_its_file() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let good = "carrier,delay\nUA,1\n";
    let hole = "\0".repeat(600);
    let utf16: Vec<u8> = good.encode_utf16().flat_map(u16::to_le_bytes).collect();
    for (header, why) in [
        (b"carrier,\"delay\nUA,1\nAA,2\n".to_vec(), "not closed"),
        (format!("carrier,del{hole}y\nUA,1\n").into_bytes(), "hole"),
        (b"\"carrier\"s,delay\nUA,1\n".to_vec(), "text follows"),
        (good.replace('\n', "\r").into_bytes(), "CR alone"),
        (b"\"carrier\",delay\r\"UA\",1\r".to_vec(), "CR alone"),
        ([b"\xff\xfe", &utf16[..]].concat(), "UTF-16"),
        (utf16, "UTF-16"),
        (b"carrier,d\xe9lay\nUA,1\n".to_vec(), "not UTF-8"),
        (b"\xfd7zXZ\0\0\x04".to_vec(), "xz"),
        (b"BZh91AY&SY\x8e\n".to_vec(), "bzip2"),
        (b"PK\x03\x04a\n".to_vec(), "zip"),
    ] {
        fs::write(at("a.csv"), &header).unwrap();
        fs::write(at("b.csv"), good).unwrap();
        let error = Driven::start(csv::<Flight>(at("a.csv"))).run().err();
        let error = error.expect("an error");
        assert!(
            error_contains(&error, &["a.csv", "header", "line 1", why, "CR LF"]),
            "{error}"
        );
        let kept = csv::<Flight>(dir.path()).on_damage(OnDamage::Keep);
        let mut driven = Driven::start(kept);
        assert_eq!(
            driven.run().unwrap().records.len(),
            1,
            "that of the other file"
        );
        let letter = &driven.context.dead_letters.sample()[0];
        assert!(header.starts_with(&letter.raw), "{letter:?}");
    }
}

#[test]
fn csv_with_an_open_quote_costs_its_row_also_in_files_that_instances_share() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["a", "b", "c"] {
        let mut text = String::from("\u{feff}\"carrier\",delay\r\n");
        for row in 0..10_000 {
            text.push_str(&match row {
                5_000 => "\"never closed,1\r\n".to_string(),
                5_500 => "x,1,too many\r\n".to_string(),
                5_600 => "too few\r\n".to_string(),
                9_000 => "\"quoted\",9000\r\n".to_string(),
                _ => format!("{name}{row},{row}\r\n"),
            });
        }
        fs::write(dir.path().join(name), text).unwrap();
    }
    let mut places = Vec::new();
    for index in 0..2 {
        let mut second = context("s");
        second.instance = Instance {
            index,
            parallelism: 2,
        };
        let mut driven: Driven<Flight> = Driven::new(csv(dir.path()), second).unwrap();
        driven.run().unwrap();
        let files = if index == 0 { 2 } else { 1 };
        assert_eq!(driven.records.len(), files * 9_997);
        assert!(
            driven
                .values()
                .iter()
                .all(|flight| flight.carrier.len() < 10)
        );
        places.extend(driven.context.dead_letters.sample());
    }
    let lines: Vec<&str> = places
        .iter()
        .map(|letter| letter.origin.rsplit(':').next().unwrap())
        .collect();
    assert_eq!(lines, ["5002", "5502", "5602"].repeat(3));
    assert_eq!(places[0].raw, b"\"never closed,1\r");
    assert!(places[0].reason.contains("not closed"), "{:?}", places[0]);
}

#[test]
fn no_single_value_ends_a_job_that_sets_records_aside() {
    let deep = "[".repeat(100_000);
    let text = [
        "1",
        "18446744073709551616",
        "-1",
        "1e400",
        &deep,
        "\u{0}",
        "\"\\ud800\"",
        "2",
        "{\"a\":",
        "NaN",
    ]
    .join("\n");
    let (_dir, path) = file("in", text.as_bytes());
    let mut driven: Driven<u64> = Driven::start(json_lines(&path));
    assert_eq!(driven.run().unwrap().values(), [&1, &2]);
    assert_eq!(driven.letters().len(), 8);
    let mut values: Driven<serde_json::Value> = Driven::start(json_lines(path));
    values.run().unwrap();
    assert!(
        values
            .letters()
            .iter()
            .any(|(_, why)| why.contains("recursion"))
    );

    let rows = b"carrier,delay\nUA,99999999999\n\xff,1\nAA,one\nDL,3\n,\n\"\",\"\"\n";
    let (_dir, path) = file("in.csv", rows);
    let mut driven = Driven::start(csv::<Flight>(path));
    driven.run().unwrap();
    assert_eq!(driven.values().len(), 3);
    assert_eq!(driven.letters().len(), 3);
}

#[test]
fn a_hole_in_the_midst_costs_one_record_and_zeros_at_the_end_none() {
    let text = numbers(3000);
    let middle = text.find("line 1500").unwrap() + 4;
    let mut bytes = text.clone().into_bytes();
    bytes[middle..middle + 4096].fill(0);
    let rest = &text[middle + 4096..];
    let expected = 1500 + rest.lines().count() - 1;
    bytes.extend(vec![0; 100_000]);
    let (_dir, path) = file("in", &bytes);
    let mut driven = Driven::start(lines(path));
    assert_eq!(driven.run().unwrap().records.len(), expected);
    let letters = driven.letters();
    assert_eq!(letters.len(), 1, "{letters:?}");
    assert!(letters[0].1.contains("zero bytes"), "{letters:?}");
    // A sparse file, longer than the maximum line length.
    let dir = tempfile::tempdir().unwrap();
    let sparse = fs::File::create(dir.path().join("in")).unwrap();
    (&sparse).write_all(b"1\n2\n").unwrap();
    sparse.set_len(40 << 20).unwrap();
    let mut driven = Driven::start(lines(dir.path().join("in")));
    assert_eq!(driven.run().unwrap().values(), ["1", "2"]);
    assert!(driven.letters().is_empty());
}

#[test]
fn a_snapshot_behind_any_call_keeps_the_damage_of_a_header() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a"), "carrier,delay\nA,1\nA,2\n").unwrap();
    fs::write(dir.path().join("b"), "\"carrier\"x,delay\nB,1\nB,2\n").unwrap();
    fs::write(dir.path().join("c"), "carrier,delay\nC,3\n").unwrap();
    let start = || {
        let source = csv::<Flight>(dir.path()).on_damage(OnDamage::Keep);
        Driven::new(source, stateful_context(0, 1)).unwrap()
    };
    for calls in 0.. {
        let mut before = start();
        while before.calls() < calls && !before.done {
            let _ = before.step().unwrap();
        }
        let mut after = start();
        after.give_back(&before.snapshot().unwrap()).unwrap();
        after.run().unwrap();
        let all = [before.values(), after.values()].concat();
        let delays: Vec<_> = all.iter().map(|flight| flight.delay).collect();
        assert_eq!(delays, [1, 2, 3].map(Some), "{calls} calls");
        let letters = [before.letters(), after.letters()].concat();
        assert_eq!(letters.len(), 1, "{calls} calls: {letters:?}");
        assert!(
            letters[0].1.contains("its header, in line 1"),
            "{letters:?}"
        );
        if before.done {
            break;
        }
    }
}

#[test]
fn a_gzip_file_that_is_cut_anywhere_never_reads_as_whole() {
    let text = numbers(2000);
    let content = gzip(text.as_bytes());
    let last = content.len() - 20..content.len();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.gz");
    for snapshot in (0..content.len()).step_by(97).chain(last) {
        fs::write(&path, &content[..snapshot]).unwrap();
        let error = Driven::start(lines(&path)).run().err();
        let error = error.unwrap_or_else(|| panic!("{snapshot} of {} bytes", content.len()));
        assert_eq!(error.code(), ErrorCode::ReadFailed);
        assert!(error.is_permanent());
    }
}

#[test]
fn a_gzip_file_with_a_wrong_checksum_or_length_fails_and_says_how_much_was_read() {
    let text = numbers(2000);
    let content = gzip(text.as_bytes());
    for back in 1..=8 {
        let mut content = content.clone();
        let at = content.len() - back;
        content[at] ^= 1;
        let (_dir, path) = file("x.gz", &content);
        let error = Driven::start(lines(&path)).run().err().expect("an error");
        let read = format!("2000 lines had been read, {} bytes", text.len());
        assert!(
            error_contains(&error, &["x.gz", "damaged", &read]),
            "{error}"
        );
    }
}

#[test]
fn members_of_a_block_each_and_frames_without_data_are_read_whole() {
    let text = numbers(2000);
    let whole: Vec<&str> = text.lines().collect();
    // Like bgzip: the size of each member in an extra field, and an empty member at the end.
    let block = |content: &[u8]| {
        let extra = b"BC\x02\0\x1b\0".to_vec();
        let builder = flate2::GzBuilder::new().extra(extra);
        let mut encoder = builder.write(Vec::new(), flate2::Compression::fast());
        encoder.write_all(content).unwrap();
        encoder.finish().unwrap()
    };
    let pieces = || text.as_bytes().chunks(100);
    let blocks = pieces().map(block).chain([block(b"")]);
    let skippable = [&[0x5f, 0x2a, 0x4d, 0x18, 3, 0, 0, 0], &b"any"[..]].concat();
    let frame = |content| [crate::testing::zstd(content), skippable.clone()].concat();
    let frames = pieces().map(frame).collect::<Vec<_>>().concat();
    for content in [blocks.collect::<Vec<_>>().concat(), frames] {
        for padding in [0, 1, 10_240] {
            let padded = [&content[..], &vec![0; padding]].concat();
            let (_dir, path) = file("x", padded);
            let mut driven = Driven::start(lines(&path));
            assert_eq!(driven.run().unwrap().values(), whole);
            assert!(driven.letters().is_empty());
        }
    }
}

#[test]
fn damage_of_what_the_sink_has_compressed_is_noticed() {
    use crate::files::{Compression, PartFile};
    let text = numbers(2000);
    let dir = tempfile::tempdir().unwrap();
    for (name, compression) in [("x.gz", Compression::Gzip), ("x.zst", Compression::Zstd)] {
        let path = dir.path().join(name);
        let mut part = PartFile::create(path.clone(), compression, |_| true).unwrap();
        part.write(text.as_bytes()).unwrap();
        part.finish(true).unwrap();
        let content = fs::read(&path).unwrap();
        // The last byte belongs to the checksum or to the length.
        for at in [content.len() / 2, content.len() - 1] {
            let mut damaged = content.clone();
            damaged[at] ^= 1;
            fs::write(&path, damaged).unwrap();
            let error = Driven::start(lines(&path)).run().err();
            let error = error.unwrap_or_else(|| panic!("{name}: byte {at}"));
            assert!(
                error_contains(&error, &[name, "damaged", "lines had been read"]),
                "{error}"
            );
        }
    }
}
