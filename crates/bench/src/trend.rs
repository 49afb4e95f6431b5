//! Linear regression over a long run, with the standard error of its slope.

/// A line of least squares through points.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Trend {
    /// Units of y per unit of x.
    pub(crate) slope: f64,
    /// The slope's standard error.
    pub(crate) error: f64,
    /// The distance between the first and the last x.
    pub(crate) span: f64,
    pub(crate) mean: f64,
}

impl Trend {
    /// Fits a line to at least three points at different x; `None` otherwise.
    pub(crate) fn of(points: &[(f64, f64)]) -> Option<Trend> {
        let count = points.len() as f64;
        if points.len() < 3 {
            return None;
        }
        let mean_x = points.iter().map(|point| point.0).sum::<f64>() / count;
        let mean = points.iter().map(|point| point.1).sum::<f64>() / count;
        let squares = |of: fn((f64, f64)) -> f64| -> f64 {
            let centred = points.iter().map(|(x, y)| (x - mean_x, y - mean));
            centred.map(of).sum()
        };
        let spread = squares(|(x, _)| x * x);
        if spread <= 0.0 {
            return None;
        }
        let slope = squares(|(x, y)| x * y) / spread;
        let unexplained = (squares(|(_, y)| y * y) - slope * slope * spread).max(0.0);
        let x = || points.iter().map(|point| point.0);
        Some(Trend {
            slope,
            error: (unexplained / (count - 2.0) / spread).sqrt(),
            span: x().fold(f64::MIN, f64::max) - x().fold(f64::MAX, f64::min),
            mean,
        })
    }

    /// Returns the change of y from one end of the line to the other, as a fraction of its mean.
    pub(crate) fn drift(&self) -> f64 {
        self.slope * self.span / self.mean
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_line_is_found_without_error_and_its_drift_is_from_end_to_end() {
        let points: Vec<(f64, f64)> = (0..5)
            .map(|x| (f64::from(x), 8.0 + 2.0 * f64::from(x)))
            .collect();
        let trend = Trend::of(&points).unwrap();
        assert_eq!((trend.slope, trend.span, trend.mean), (2.0, 4.0, 12.0));
        assert_eq!(trend.error, 0.0);
        assert!((trend.drift() - 8.0 / 12.0).abs() < 1e-12);
    }

    #[test]
    fn of_what_goes_up_and_down_the_slope_is_within_its_error() {
        let points = [(0.0, 1.0), (1.0, 2.0), (2.0, 1.0), (3.0, 2.0), (4.0, 1.0)];
        let trend = Trend::of(&points).unwrap();
        assert_eq!(trend.slope, 0.0);
        assert!((trend.error - (1.2f64 / 3.0 / 10.0).sqrt()).abs() < 1e-12);
    }

    #[test]
    fn two_points_or_one_moment_have_no_trend() {
        assert_eq!(Trend::of(&[(0.0, 1.0), (1.0, 2.0)]), None);
        assert_eq!(Trend::of(&[(1.0, 1.0), (1.0, 2.0), (1.0, 3.0)]), None);
    }

    proptest! {
        #[test]
        fn noise_around_a_line_leaves_its_slope_within_a_few_errors(
            slope in -5.0f64..5.0,
            noise in prop::collection::vec(-1.0f64..1.0, 30..60),
        ) {
            let points: Vec<(f64, f64)> = noise
                .iter()
                .enumerate()
                .map(|(x, noise)| (x as f64, 100.0 + slope * x as f64 + noise))
                .collect();
            let trend = Trend::of(&points).unwrap();
            prop_assert!((trend.slope - slope).abs() <= 6.0 * trend.error, "{trend:?}");
        }
    }
}
