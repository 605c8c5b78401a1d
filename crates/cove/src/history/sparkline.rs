//! Sparklines: values as a line of characters. Pure.

/// Characters of a sparkline, the lowest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SparklineSet {
    /// Blocks of Unicode.
    Blocks,
    /// For terminals whose character set is not UTF-8.
    Ascii,
}

impl SparklineSet {
    fn levels(self) -> [char; 8] {
        match self {
            SparklineSet::Blocks => ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'],
            SparklineSet::Ascii => ['_', '.', ',', '-', '=', '+', '*', '#'],
        }
    }
}

/// Returns a line of at most `width` characters: each shows the maximum of its values, a blank is a
/// gap. The scale begins at 0.
pub(super) fn sparkline(values: &[Option<f32>], width: usize, set: SparklineSet) -> String {
    let levels = set.levels();
    let top = values.iter().flatten().copied().fold(0.0_f32, f32::max);
    let per_column = values.len().div_ceil(width.max(1)).max(1);
    let column = |values: &[Option<f32>]| {
        let Some(value) = values.iter().flatten().copied().reduce(f32::max) else { return ' ' };
        // The lowest level is for zero only.
        let share = if top > 0.0 { value / top } else { 0.0 };
        let level = (1..levels.len()).rev().find(|level| {
            let bound = f32::from(u8::try_from(*level - 1).unwrap_or(0)) / 7.0;
            share > bound
        });
        levels[level.unwrap_or(0)]
    };
    values.chunks(per_column).map(column).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_shows_peaks_gaps_and_zero() {
        let values = |text: &str| -> Vec<Option<f32>> {
            let parse = |it: &str| if it == "-" { None } else { Some(it.parse().unwrap()) };
            text.split(' ').map(parse).collect()
        };
        for (text, width, blocks, ascii) in [
            ("0 1 2 3 4 5 6 7", 8, "▁▂▃▄▅▆▇█", "_.,-=+*#"),
            ("0 0 0", 8, "▁▁▁", "___"),
            ("0 0.001 100", 8, "▁▂█", "_.#"),
            ("- 5 - 0", 8, " █ ▁", " # _"),
            ("1 7 0 0 - 1", 3, "█▁▂", "#_."),
            ("- -", 1, " ", " "),
        ] {
            assert_eq!(sparkline(&values(text), width, SparklineSet::Blocks), blocks, "{text}");
            assert_eq!(sparkline(&values(text), width, SparklineSet::Ascii), ascii, "{text}");
        }
    }
}
