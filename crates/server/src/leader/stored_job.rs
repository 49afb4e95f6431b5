//! The value of a job's definition node: the submission and the leader's job record, as one value.
//!
//! ```text
//! "ARDJ"   4 bytes
//! version  2 bytes, little-endian
//! submission  8 bytes, little-endian: readable without unpacking the rest
//! the rest    zstd of postcard
//! ```
//!
//! The value is compressed because a ZooKeeper server accepts only one megabyte. A plan of 20,000
//! instances takes nearly 400 KB as JSON, and a change of plan stores two plans.

use std::collections::BTreeSet;
use std::sync::Arc;

use ardea_coordination::control::{JobDefinition, JobRecord, Previous};
use ardea_coordination::packing::PackingPlan;
use ardea_core::{Error, ErrorCode, Result};
use ardea_metastore::MAX_VALUE_BYTES;
use serde::{Deserialize, Serialize};

use crate::leader::encoded_value::{pack, unpack};

const LETTERS: [u8; 4] = *b"ARDJ";

/// The version of the layout.
const VERSION: u16 = 2;

/// The size of the magic bytes, the version and the submission.
const HEAD_BYTES: usize = 14;

/// The number of hexadecimal digits of a package's digest.
const DIGEST_DIGITS: usize = 64;

/// A job as stored in its definition node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredJob {
    /// The submission, which never changes.
    pub submitted: Arc<Submitted>,
    /// The job record, with the decisions of the job's leaders.
    pub record: Arc<JobRecord>,
}

/// A submitted job definition with the time of its submission.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Submitted {
    /// The job definition.
    pub definition: JobDefinition,
    /// The time of the submission, in milliseconds since 1970 by the submitter's clock.
    pub at_ms: u64,
}

impl StoredJob {
    /// Encodes the job.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::LimitReached`], with the size and the limit, if the value exceeds the limit of
    /// the metadata store.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let job = &self.record.job;
        let name = format!("the metadata of job {job}");
        let (version, submission) = (VERSION.to_le_bytes(), job.submission.to_le_bytes());
        let header = [&LETTERS[..], &version, &submission].concat();
        let value = pack(&name, &header, &(&*self.submitted, &*self.record))?;
        if value.len() > MAX_VALUE_BYTES {
            let plan = self.record.plan.as_ref();
            let instances = plan.map_or(0, |plan| plan.instance_count());
            let what = format!(
                "{name}, with a plan of {instances} instances, takes {} bytes, and the metadata store allows {MAX_VALUE_BYTES}",
                value.len(),
            );
            return Err(Error::new(ErrorCode::LimitReached, what)
                .hint("use fewer instances, shorter names and attributes, or several jobs"));
        }
        Ok(value)
    }

    /// Decodes a job.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::VersionMismatch`] for another layout, [`ErrorCode::MetastoreCorrupt`] if the
    /// value is damaged.
    pub fn decode(value: &[u8]) -> Result<Self> {
        let (submission, packed) = open(value)?;
        let (submitted, record): (Submitted, JobRecord) = unpack(packed).map_err(damaged)?;
        if record.job.submission != submission || submitted.definition.job != record.job {
            return Err(damaged("its parts belong to different jobs"));
        }
        Ok(StoredJob {
            submitted: Arc::new(submitted),
            record: Arc::new(record),
        })
    }

    /// Returns the digests of the packages that the job may need: those of its program, and of its
    /// successor and predecessor in an upgrade.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::Internal`] if the job can't be encoded.
    pub fn packages(&self) -> Result<BTreeSet<String>> {
        let body = postcard::to_stdvec(&(&*self.submitted, &*self.record)).map_err(|error| {
            let what = "the packages of a job can't be determined";
            Error::new(ErrorCode::Internal, what).because(error)
        })?;
        // Every digest-like text in any field counts: no field can be forgotten, and an extra match
        // is harmless.
        let is_digest = |bytes: &&[u8]| bytes.iter().all(u8::is_ascii_hexdigit);
        let found = body.windows(DIGEST_DIGITS).filter(is_digest);
        Ok(found
            .map(|digits| String::from_utf8_lossy(digits).into_owned())
            .collect())
    }

    /// Returns the submission in an encoded value, at constant cost.
    ///
    /// # Errors
    ///
    /// As [`decode`](Self::decode), but only for the header of the value.
    pub fn submission(value: &[u8]) -> Result<u64> {
        open(value).map(|(submission, _)| submission)
    }

    /// Checks that the job fits into the metadata store at its largest size: during a change of
    /// plan, with two plans of the size of `plan`.
    ///
    /// # Errors
    ///
    /// As [`encode`](Self::encode).
    pub fn check_size(&self, plan: PackingPlan) -> Result<()> {
        let plan = Arc::new(plan);
        let mut record = (*self.record).clone();
        record.previous = Some(Previous {
            plan: Arc::clone(&plan),
            version: record.plan_version,
            switched: false,
        });
        record.plan = Some(plan);
        let largest = StoredJob {
            submitted: Arc::clone(&self.submitted),
            record: Arc::new(record),
        };
        largest.encode().map(|_| ())
    }
}

/// Splits an encoded value into the submission and the compressed rest.
fn open(value: &[u8]) -> Result<(u64, &[u8])> {
    let head = value.split_first_chunk::<HEAD_BYTES>();
    let Some((head, packed)) = head.filter(|(head, _)| head.starts_with(&LETTERS)) else {
        return Err(damaged("it does not begin with the magic bytes of a job"));
    };
    let [_, _, _, _, low, high, submission @ ..] = *head;
    let version = u16::from_le_bytes([low, high]);
    if version != VERSION {
        let what = format!(
            "a job is stored in layout {version}, and this version of Ardea reads layout {VERSION}"
        );
        return Err(Error::new(ErrorCode::VersionMismatch, what)
            .hint("use the version that it was submitted with, write a savepoint with it, and submit the job again from there (recovery.from); or kill it, and submit it again with empty state"));
    }
    Ok((u64::from_le_bytes(submission), packed))
}

fn damaged(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::new(
        ErrorCode::MetastoreCorrupt,
        "the metadata of a job is damaged",
    )
    .because(why)
    .hint("restore it from a backup, or remove the job's node (`ardea metastore remove`) and submit it again")
}

/// Returns true if an error means that a stored value is unreadable: damaged, or written by another
/// version.
pub fn is_unreadable(error: &Error) -> bool {
    matches!(
        error.code(),
        ErrorCode::MetastoreCorrupt | ErrorCode::VersionMismatch
    )
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use ardea_coordination::control::{JobRef, ProgramRef};
    use ardea_coordination::packing::{
        JobDemand, PackingConfig, PackingPolicy, Resources, RoundRobin, VertexDemand,
    };
    use proptest::prelude::*;

    /// Returns a job with this number of instances, and a plan with this number of containers.
    pub(crate) fn job(instances: u32, containers: u32) -> (StoredJob, PackingPlan) {
        let job = JobRef {
            cluster: "test".into(),
            name: "word-count".into(),
            submission: 42,
        };
        let demand = (0..10).fold(JobDemand::new("word-count"), |demand, vertex| {
            let name = format!("a vertex with the number {vertex}");
            let count = (instances / 10).max(1);
            demand.vertex(VertexDemand::new(name.as_str(), count, Resources::ZERO))
        });
        let packing = PackingConfig {
            containers: std::num::NonZeroU32::new(containers),
            ..PackingConfig::default()
        };
        let plan = RoundRobin.pack(&demand, &packing).unwrap();
        let definition = JobDefinition {
            job: job.clone(),
            program: ProgramRef {
                package: "0".repeat(64),
                executable: "bin/word-count".into(),
                arguments: vec!["--rate".into(), "5".into()],
            },
            packing: "round-robin".into(),
            scheduler: "local".into(),
            settings: [("engine.slice".to_string(), "100us".to_string())].into(),
            version: "0.1.0".into(),
        };
        let stored = StoredJob {
            submitted: Arc::new(Submitted {
                definition,
                at_ms: 7,
            }),
            record: Arc::new(JobRecord::submitted(job, demand, packing)),
        };
        (stored, plan)
    }

    #[test]
    fn a_job_reads_back_as_it_was_written() {
        let (mut stored, plan) = job(40, 3);
        let mut record = (*stored.record).clone();
        record.plan = Some(Arc::new(plan));
        stored.record = Arc::new(record);
        let value = stored.encode().unwrap();
        assert_eq!(StoredJob::decode(&value).unwrap(), stored);
        assert_eq!(StoredJob::submission(&value).unwrap(), 42);
    }

    #[test]
    fn a_job_needs_its_own_package_and_that_of_the_program_that_is_to_follow() {
        let (mut stored, _) = job(40, 3);
        let own = "0".repeat(64);
        assert_eq!(stored.packages().unwrap(), [own.clone()].into());
        let mut next = stored.submitted.definition.clone();
        next.program.package = "5f".repeat(32);
        let order = ardea_coordination::control::UpgradeOrder {
            next: ardea_coordination::control::Successor {
                definition: next,
                demand: stored.record.demand.clone(),
                packing: stored.record.packing.clone(),
            },
            back: 7,
            commit_timeout: std::time::Duration::from_secs(1),
        };
        let mut record = (*stored.record).clone();
        record.upgrade = Some(ardea_coordination::control::Upgrade::Stopping(Arc::new(
            order,
        )));
        stored.record = Arc::new(record);
        let packages = stored.packages().unwrap();
        assert!(
            packages.contains(&own) && packages.contains(&"5f".repeat(32)),
            "{packages:?}"
        );
    }

    #[test]
    fn two_plans_of_twenty_thousand_instances_can_be_stored() {
        let (stored, plan) = job(20_000, 1_000);
        stored.check_size(plan).unwrap();
    }

    #[test]
    fn a_job_that_can_not_be_stored_is_refused_with_both_sizes() {
        let (mut stored, plan) = job(40, 3);
        let mut submitted = (*stored.submitted).clone();
        let mut state = 1_u64;
        let noise = std::iter::repeat_with(|| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            char::from(b' ' + (state >> 57) as u8 % 90)
        });
        let noise: String = noise.take(3 * MAX_VALUE_BYTES).collect();
        submitted.definition.program.arguments.push(noise);
        stored.submitted = Arc::new(submitted);
        let error = stored.check_size(plan).unwrap_err();
        assert_eq!(error.code(), ErrorCode::LimitReached);
        assert!(error.to_string().contains("1000000"), "{error}");
    }

    #[test]
    fn another_layout_is_refused_with_both_versions() {
        let mut value = job(10, 1).0.encode().unwrap();
        value[4] = 9;
        let error = StoredJob::decode(&value).unwrap_err();
        assert_eq!(error.code(), ErrorCode::VersionMismatch);
        assert!(error.to_string().contains('9'), "{error}");
    }

    proptest! {
        #[test]
        fn damage_is_an_error_and_never_a_panic(
            at in 0_usize..400,
            to in any::<u8>(),
            cut in 0_usize..400,
        ) {
            let (stored, _) = job(10, 1);
            let whole = stored.encode().unwrap();
            let mut value = whole.clone();
            let at = at % value.len();
            value[at] = to;
            value.truncate(value.len().saturating_sub(cut));
            if let Ok(read) = StoredJob::decode(&value) {
                prop_assert_eq!(read.record.job.submission, 42);
            }
        }
    }
}
