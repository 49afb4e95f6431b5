//! The builder of a cause.

use ardea_rest::{CauseKind, CauseView, FigureUnit, FigureView};

/// A cause under construction.
pub(super) struct Cause(CauseView);

impl Cause {
    /// Creates a cause of the whole job. The severity is limited to the range from 0 to 1.
    pub(super) fn new(kind: CauseKind, severity: f64, summary: impl Into<String>) -> Self {
        Cause(CauseView {
            kind,
            subject: None,
            // Three digits, so that the JSON stays readable.
            severity: (severity.clamp(0.0, 1.0) * 1e3).round() / 1e3,
            summary: summary.into(),
            figures: Vec::new(),
            advice: String::new(),
        })
    }

    /// Sets the vertex, instance or container.
    pub(super) fn of(mut self, subject: impl Into<String>) -> Self {
        self.0.subject = Some(subject.into());
        self
    }

    /// Adds a figure, rounded to three digits after the decimal point.
    pub(super) fn figure(mut self, name: impl Into<String>, value: f64, unit: FigureUnit) -> Self {
        self.0.figures.push(FigureView {
            name: name.into(),
            value: (value * 1e3).round() / 1e3,
            unit,
        });
        self
    }

    /// Sets the remedy.
    pub(super) fn advice(mut self, advice: impl Into<String>) -> CauseView {
        self.0.advice = advice.into();
        self.0
    }
}

/// Returns the first names of a list as text: `a, b and 3 more`.
pub(super) fn listed(names: &[String]) -> String {
    const SHOWN: usize = 3;
    match names.len() {
        0..=SHOWN => names.join(", "),
        more => format!("{} and {} more", names[..SHOWN].join(", "), more - SHOWN),
    }
}
