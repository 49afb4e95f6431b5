//! The parameters of `ardea bench sgd`.

use ardea_config::parse_count;
use ardea_core::Result;

use crate::bounds::{check_range, refused};
use crate::flags::size;
use crate::report::{Field, fields};

/// The maximum number of workers.
const MOST_WORKERS: u32 = 64;

/// The parameters of `ardea bench sgd`; its options have the same names. The defaults have the
/// shape of RCV1.
#[derive(clap::Args, Clone, Debug)]
pub struct SgdParams {
    /// Number of rows
    #[arg(long, value_name = "N", value_parser = size, default_value = "677_000")]
    pub rows: usize,
    /// Number of features
    #[arg(long, value_name = "N", value_parser = size, default_value = "47_236")]
    pub features: usize,
    /// Share of features of a row that are not zero
    #[arg(long, value_name = "SHARE", default_value_t = 0.0016)]
    pub density: f64,
    /// Number of worker threads
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub workers: u32,
    /// Number of partitions; it decides the order of merges
    #[arg(long, value_name = "N", value_parser = size, default_value = "4")]
    pub partitions: usize,
    /// Rows of a batch
    #[arg(long, value_name = "N", value_parser = size, default_value = "20_000")]
    pub batch: usize,
    /// Number of iterations
    #[arg(long, value_name = "N", value_parser = parse_count, default_value = "200")]
    pub iterations: u64,
    /// Iterations in a group, for which workers receive one decision
    #[arg(long, value_name = "N", value_parser = parse_count, default_value = "10")]
    pub group: u64,
    /// Send changed components only, and add an L1 penalty
    #[arg(long)]
    pub sparse: bool,
    /// Weight of the L1 penalty with `--sparse`
    #[arg(long, value_name = "WEIGHT", default_value_t = 1e-5)]
    pub l1: f64,
    /// Weight of the L2 penalty
    #[arg(long, value_name = "WEIGHT", default_value_t = 1e-5)]
    pub l2: f64,
    /// Seed of the data
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Also train with scikit-learn, by the Python in `ARDEA_BENCH_PYTHON` (`python3`)
    #[arg(long)]
    pub scikit_learn: bool,
}

impl SgdParams {
    pub(crate) fn check(&self) -> Result<()> {
        check_range("--rows", self.rows, 1..=100_000_000)?;
        check_range("--features", self.features, 1..=1 << 24)?;
        check_range("--workers", self.workers, 1..=MOST_WORKERS)?;
        check_range(
            "--partitions",
            self.partitions,
            self.workers as usize..=4096,
        )?;
        check_range("--batch", self.batch, 1..=usize::MAX)?;
        check_range("--iterations", self.iterations, 2..=1_000_000)?;
        check_range("--group", self.group, 1..=1_000_000)?;
        if !(self.density > 0.0 && self.density <= 1.0) {
            return Err(refused(format!(
                "--density {} is not from 0 to 1",
                self.density
            )));
        }
        if !(self.l2 > 0.0 && self.l2.is_finite()) {
            return Err(refused(format!("--l2 {} is not above zero", self.l2)));
        }
        Ok(())
    }

    pub(crate) fn fields(&self) -> Vec<Field> {
        fields!(self; rows, features, density, workers, partitions, batch, iterations, group,
            sparse, l1, l2, seed, scikit_learn)
    }
}

#[cfg(test)]
mod tests {
    use ardea_core::ErrorCode;

    use super::*;

    #[test]
    fn parameters_that_measure_nothing_are_refused() {
        type Set = fn(&mut SgdParams);
        let wrong: [Set; 6] = [
            |params| params.rows = 0,
            |params| params.workers = 0,
            |params| params.partitions = 3,
            |params| params.group = 0,
            |params| params.iterations = 1,
            |params| params.density = f64::NAN,
        ];
        for set in wrong {
            let mut params = SgdParams::default();
            assert!(params.check().is_ok());
            set(&mut params);
            let error = params.check().unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidConfig, "{params:?}");
        }
    }
}
