//! An independent decoder of packs of slices, as
//! `docs/design/savepoints-and-upgrades.md` describes them.

/// Decodes a pack written by a codec without integers: the position of each entry (slice, table and
/// key), and its contents (pending flag and accumulator).
pub fn unpacked(pack: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let (mark, mut rest) = pack.split_at(5);
    assert_eq!(mark, [255, 255, 255, 255, 3]);
    let (mut slice, mut table) = (0, 0);
    let (mut entries, mut keys) = (Vec::new(), Vec::new());
    while !rest.is_empty() {
        match number(&mut rest) {
            0 => {
                let distance = number(&mut rest);
                let distance = (distance >> 1) as i64 ^ -((distance & 1) as i64);
                slice += distance;
                table = number(&mut rest);
            }
            head => {
                let at = match head {
                    1 => {
                        let (kinds, behind) = rest.split_first().expect("the kinds");
                        assert_eq!(*kinds, 0, "no integers");
                        rest = behind;
                        keys.push(bytes(&mut rest));
                        keys.len() - 1
                    }
                    again => again as usize - 2,
                };
                let (key, acc) = (&keys[at], bytes(&mut rest));
                let place = [&slice.to_be_bytes()[..], &(table >> 1).to_be_bytes(), key];
                let what = [&[(table & 1) as u8][..], &acc];
                entries.push((place.concat(), what.concat()));
            }
        }
    }
    entries
}

fn bytes(rest: &mut &[u8]) -> Vec<u8> {
    let length = number(rest) as usize;
    let (bytes, behind) = rest.split_at(length);
    *rest = behind;
    bytes.to_vec()
}

fn number(rest: &mut &[u8]) -> u64 {
    let (mut number, mut shift) = (0, 0);
    loop {
        let (byte, behind) = rest.split_first().expect("a number that ends");
        *rest = behind;
        number |= u64::from(byte & 0x7f) << shift;
        shift += 7;
        if *byte < 0x80 {
            return number;
        }
    }
}
