//! Tests of compressed files that several instances share, member by member.

use std::fs;
use std::io::{self, ErrorKind, Read};

use ardea_core::StateChunk;
use proptest::prelude::*;

use super::block_tests::{attempt, read_all, text};
use super::blocks::FileBlocks;
use super::member_finder::MemberFinder;
use super::packed_blocks::PackedBlockReader;
use super::tests::file;
use super::*;
use crate::decompressed::Packing;
use crate::files::location::SourceFile;
use crate::testing::{bgzip_member, error_contains, gzip, zstd};

/// The members of a compressed file.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Zstd,
    /// Gzip members that say where they end.
    Bgzip,
    /// Gzip members that do not, with padding after some.
    Gzip,
}

fn kinds() -> impl Strategy<Value = Kind> {
    prop_oneof![Just(Kind::Zstd), Just(Kind::Bgzip), Just(Kind::Gzip)]
}

/// Returns a content compressed in members of these sizes, which are repeated.
fn packed(content: &[u8], sizes: &[usize], kind: Kind) -> Vec<u8> {
    let (mut rest, mut all) = (content, Vec::new());
    for size in sizes.iter().cycle() {
        let (member, next) = rest.split_at((*size).min(rest.len()));
        all.extend(match kind {
            Kind::Zstd => zstd(member),
            Kind::Bgzip => bgzip_member(member),
            Kind::Gzip => gzip(member),
        });
        if matches!(kind, Kind::Gzip) {
            all.extend(vec![0; size % 3]);
        }
        rest = next;
        if rest.is_empty() {
            break;
        }
    }
    all
}

fn sizes() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(prop_oneof![3 => 1usize..60, 1 => 1usize..400], 1..8)
}

proptest! {
    #[test]
    fn each_line_is_read_once_by_any_number_of_instances(
        lengths in prop::collection::vec(prop_oneof![3 => 0usize..20, 1 => 0usize..200], 0..60),
        sizes in sizes(), kind in kinds(), is_ended: bool, block in 1u64..200, instances in 1u32..6,
    ) {
        let text = text(&lengths, "\n", is_ended);
        let (_dir, path) = file("in", packed(text.as_bytes(), &sizes, kind));
        let source = || lines(&path).block_bytes(block);
        let (mut records, letters) = read_all(source, instances);
        records.sort_unstable();
        prop_assert!(records.iter().map(String::as_str).eq(text.lines()), "{:?}", records);
        prop_assert!(letters.is_empty());
    }

    #[test]
    fn bad_records_name_their_line_in_each_member(
        numbers in prop::collection::vec(prop_oneof![2 => Just("1"), 1 => Just("bad"), 1 => Just("")], 0..60),
        sizes in sizes(), kind in kinds(), block in 1u64..100, instances in 1u32..5,
    ) {
        let content = packed(numbers.join("\n").as_bytes(), &sizes, kind);
        let (_dir, path) = file("in", content);
        let source = || json_lines::<u32>(&path).block_bytes(block);
        let (records, letters) = read_all(source, instances);
        prop_assert_eq!(records.len(), numbers.iter().filter(|it| **it == "1").count());
        let mut seen: Vec<_> = letters.into_iter().map(|(origin, _)| origin).collect();
        seen.sort_unstable();
        let bad = (1..).zip(&numbers).filter(|(_, text)| **text == "bad");
        let mut expected: Vec<_> = bad.map(|(line, _)| format!("{}:{line}", path.display())).collect();
        expected.sort_unstable();
        prop_assert_eq!(seen, expected);
    }

    #[test]
    fn each_line_is_read_once_across_restores_and_rescales(
        lengths in prop::collection::vec(prop_oneof![3 => 0usize..20, 1 => 0usize..100], 0..120),
        sizes in sizes(), kind in kinds(), block in 1u64..150, is_ended: bool,
        attempts in prop::collection::vec((2u32..5, prop::collection::vec(0usize..8, 5)), 1..5),
    ) {
        let text = text(&lengths, "\n", is_ended);
        let (_dir, path) = file("in", packed(text.as_bytes(), &sizes, kind));
        let source = || lines(&path).block_bytes(block);
        let (mut snapshots, mut all, mut last) = (Vec::<StateChunk>::new(), Vec::new(), 2);
        for (parallelism, steps) in attempts {
            let mut instances = attempt(source, parallelism, &snapshots);
            for (driven, steps) in instances.iter_mut().zip(steps) {
                for _ in 0..steps {
                    if !driven.done {
                        let _ = driven.step().unwrap();
                    }
                }
                prop_assert!(driven.records.is_sorted(), "the order of the file");
            }
            snapshots = instances.iter_mut().map(|it| it.snapshot().unwrap()).collect();
            all.extend(instances.iter_mut().flat_map(|it| it.records.drain(..)));
            last = parallelism;
        }
        for driven in &mut attempt(source, last, &snapshots) {
            driven.run().unwrap();
            prop_assert!(driven.records.is_sorted());
            all.append(&mut driven.records);
        }
        let mut all: Vec<String> = all.into_iter().map(|(line, _)| line).collect();
        all.sort_unstable();
        prop_assert!(all.iter().map(String::as_str).eq(text.lines()), "{:?}", all);
    }
}

#[test]
fn each_instance_reads_a_part_and_has_the_header() {
    let rows: String = (0..5_000).map(|n| format!("{n},c{n}\n")).collect();
    let text = format!("delay,carrier\n{rows}");
    let (_dir, path) = file("in.csv.gz", packed(text.as_bytes(), &[1_000], Kind::Bgzip));
    let source = || read(&path, Csv::new().single_line()).block_bytes(2_000);
    assert_eq!(source().instances(), Parallelism::Auto);
    let mut all = Vec::new();
    for mut driven in attempt::<super::tests::Flight, _>(source, 3, &[]) {
        driven.run().unwrap();
        assert!(driven.records.len() > 1_000, "{}", driven.records.len());
        all.extend(driven.records.drain(..).map(|(flight, _)| flight.delay));
    }
    all.sort_unstable();
    assert!(all.into_iter().eq((0..5_000).map(Some)));
}

#[test]
fn a_file_of_one_member_has_one_instance_and_other_files_have_several() {
    let (_dir, path) = file("in.gz", gzip(b"one\ntwo\n"));
    assert_eq!(lines(&path).instances(), Parallelism::ONE);
    let (_dir, path) = file("in.gz", [gzip(b"one\n"), gzip(b"two\n")].concat());
    assert_eq!(lines(&path).instances(), Parallelism::Auto);
    let source = || lines(&path).block_bytes(1);
    let (records, _) = read_all(source, 2);
    assert_eq!(records, ["one", "two"]);
    let (_dir, path) = file("in.zst", packed(b"one\ntwo\n", &[4], Kind::Zstd));
    assert_eq!(lines(&path).instances(), Parallelism::Auto);
    let folder = path.parent().unwrap();
    assert_eq!(lines(folder).suffix(".zst").instances(), Parallelism::Auto);
}

#[test]
fn gzip_members_are_read_by_all_instances() {
    let text = text(&[40; 5_000], "\n", true);
    let (_dir, path) = file("in.gz", packed(text.as_bytes(), &[3_000], Kind::Gzip));
    let source = || lines(&path).block_bytes(2_000);
    for mut driven in attempt(source, 3, &[]) {
        driven.run().unwrap();
        assert!(driven.records.len() > 1_000, "{}", driven.records.len());
    }
}

/// Returns an instance's share of a file as text, read by searching for the members.
fn searched_stream(path: &Path, packing: Packing, blocks: FileBlocks) -> io::Result<(String, u64)> {
    let members = MemberFinder::Searched {
        packing,
        end: blocks.end,
    };
    let file = SourceFile::Local(File::open(path)?);
    let mut reader = PackedBlockReader::with_members(file, path, blocks, members);
    let mut all = Vec::new();
    loop {
        match reader.read_to_end(&mut all) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            read => break read.map(drop)?,
        }
    }
    let offset = reader.positions().file_offset(all.len() as u64);
    let text = String::from_utf8(all).map_err(io::Error::other)?;
    Ok((text, offset))
}

fn shares(instances: u32, block: u64, end: u64) -> impl Iterator<Item = FileBlocks> {
    let instances = (0..instances).map(move |index| Instance {
        index,
        parallelism: instances,
    });
    instances.filter_map(move |instance| Some(FileBlocks::of(instance, block, end)?.packed()))
}

proptest! {
    #[test]
    fn members_that_are_searched_for_are_read_as_those_that_say_where_they_end(
        lengths in prop::collection::vec(prop_oneof![3 => 0usize..20, 1 => 0usize..200], 0..60),
        sizes in sizes(), is_zstd: bool, is_ended: bool, block in 1u64..200, instances in 2u32..6,
    ) {
        let (kind, packing) = match is_zstd {
            true => (Kind::Zstd, Packing::Zstd),
            false => (Kind::Bgzip, Packing::Gzip),
        };
        let text = text(&lengths, "\n", is_ended);
        let content = packed(text.as_bytes(), &sizes, kind);
        let end = content.len() as u64;
        let (_dir, path) = file("in", content);
        for blocks in shares(instances, block, end) {
            let known = SourceFile::Local(File::open(&path).unwrap());
            let mut known = PackedBlockReader::new(known, &path, blocks.clone()).unwrap();
            let mut expected = String::new();
            known.read_to_string(&mut expected).unwrap();
            let offset = known.positions().file_offset(expected.len() as u64);
            let searched = searched_stream(&path, packing, blocks).unwrap();
            prop_assert_eq!(searched, (expected, offset));
        }
    }
}

#[test]
fn a_frame_within_a_skippable_frame_is_not_read_as_a_member() {
    let (one, two) = (zstd(b"one\n"), zstd(b"two\n"));
    let hidden = [&[b'x'; 300][..], &zstd(b"hidden\n")].concat();
    let length = u32::try_from(hidden.len()).unwrap().to_le_bytes();
    let skippable = [&[0x5e, 0x2a, 0x4d, 0x18][..], &length, &hidden].concat();
    let content = [&one[..], &skippable, &two, &zstd(&[b'\n'; 9])].concat();
    let (end, block) = (content.len() as u64, one.len() as u64 + 50);
    let (_dir, path) = file("in", &content);
    let streams = shares(2, block, end).map(|it| searched_stream(&path, Packing::Zstd, it));
    let errors: Vec<_> = streams.filter_map(Result::err).collect();
    let told = errors
        .iter()
        .any(|error| error.to_string().contains("in_order()"));
    assert!(told, "{errors:?}");
    // The frames say where they end, and are not searched for.
    let (records, _) = read_all(|| lines(&path).block_bytes(block), 2);
    assert_eq!(records.iter().filter(|it| !it.is_empty()).count(), 2);
}

#[test]
fn a_damaged_member_fails_the_job_and_another_file_fails_the_restored_job() {
    let text = text(&[40; 1_000], "\n", true);
    let content = packed(text.as_bytes(), &[1_000], Kind::Zstd);
    let (_dir, path) = file("in", &content);
    let source = || lines(&path).block_bytes(1_000);
    let mut before = attempt(source, 2, &[]);
    let snapshots = before.iter_mut();
    let snapshots = snapshots.map(|it| it.run_until_records(1).snapshot().unwrap());
    let snapshots: Vec<_> = snapshots.collect();
    drop(before);
    let mut broken = content.clone();
    let end = broken.len();
    broken[end - 1] ^= 1;
    fs::write(&path, &broken).unwrap();
    let mut failures = 0;
    for mut driven in attempt(source, 2, &[]) {
        if let Err(error) = driven.run() {
            assert!(
                error_contains(&error, &["in", "damaged", "instances"]),
                "{error}"
            );
            failures += 1;
        }
    }
    assert!(failures > 0);
    fs::write(
        &path,
        packed(text.replace('x', "y").as_bytes(), &[1_000], Kind::Zstd),
    )
    .unwrap();
    for mut driven in attempt(source, 2, &snapshots) {
        let error = driven.run().err().expect("it was replaced");
        assert!(
            error_contains(&error, &["in", "without the checkpoint"]),
            "{error}"
        );
    }
}
