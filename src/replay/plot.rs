//! Plots as SVG: step lines and bars.
//!
//! Colours are classes (`s0` to `s7`), so that the page can define them for light and dark mode. After the eighth line,
//! lines are dashed.

use svg::{
    Document,
    node::element::{Group, Line, Path, Rectangle, Text, Title, path::Data},
};

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 320.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 16.0;
const BOTTOM: f64 = 36.0;

/// The height of a bar, including the gap to the next.
const BAR: f64 = 22.0;

/// The width of the names beside bars.
const NAMES: f64 = 330.0;

/// The width of the numbers after bars.
const NUMBERS: f64 = 90.0;

/// The number of colours before lines are dashed.
pub(super) const COLOURS: usize = 8;

/// A line: its name, the number that determines its colour, and its points.
pub(super) struct Series {
    pub(super) name: String,
    pub(super) colour: usize,
    pub(super) points: Vec<(f64, f64)>,
}

/// A bar: its name, its parts, and the text after it.
pub(super) struct Bar {
    pub(super) name: String,
    pub(super) parts: Vec<f64>,
    pub(super) number: String,
}

/// Draws step lines: a value holds until the next point. `limit` is drawn as a dashed line. Values far above it are cut
/// off, so that the rest remains distinguishable.
pub(super) fn steps(series: &[Series], limit: Option<f64>, (x_name, y_name): (&str, &str)) -> String {
    let points = || series.iter().flat_map(|series| &series.points);
    let x_max = nice(points().map(|point| point.0).fold(1.0, f64::max));
    let highest = points().map(|point| point.1).chain(limit).fold(f64::MIN_POSITIVE, f64::max);
    let y_max = limit.map_or_else(|| nice(highest), |limit| nice(highest).min(limit * 1.25));
    let x = |value: f64| LEFT + value / x_max * (WIDTH - LEFT - RIGHT);
    let y = |value: f64| HEIGHT - BOTTOM - value.min(y_max) / y_max * (HEIGHT - TOP - BOTTOM);
    let mut document = Document::new()
        .set("viewBox", format!("0 0 {WIDTH} {HEIGHT}"))
        .set("role", "img")
        .add(Title::new(format!("{y_name} over {x_name}")));
    for tick in 0..=4 {
        let (part, grid) = (f64::from(tick) / 4.0, if tick == 0 { "axis" } else { "grid" });
        let (at_x, at_y) = (x(part * x_max), y(part * y_max));
        document = document
            .add(line((LEFT, at_y), (WIDTH - RIGHT, at_y), grid))
            .add(text((LEFT - 6.0, at_y + 4.0), "end", number(part * y_max)))
            .add(text((at_x, HEIGHT - BOTTOM + 16.0), "middle", number(part * x_max)));
    }
    document = document.add(text((WIDTH - RIGHT, HEIGHT - 4.0), "end", x_name.to_owned())).add(text(
        (LEFT + 4.0, TOP - 4.0),
        "start",
        y_name.to_owned(),
    ));
    if let Some(limit) = limit {
        document = document.add(line((LEFT, y(limit)), (WIDTH - RIGHT, y(limit)), "limit"));
    }
    for series in series {
        let Some(first) = series.points.first() else { continue };
        let mut data = Data::new().move_to((rounded(x(first.0)), rounded(y(first.1))));
        for point in &series.points[1..] {
            data = data.horizontal_line_to(rounded(x(point.0))).vertical_line_to(rounded(y(point.1)));
        }
        let path = Path::new().set("d", data).set("class", class(series.colour));
        document = document.add(Group::new().add(Title::new(series.name.clone())).add(path));
    }
    document.to_string()
}

/// Draws horizontal bars of parts on a common scale, which ends at `most` or otherwise at the longest bar.
pub(super) fn bars(bars: &[Bar], most: Option<f64>) -> String {
    let longest = bars.iter().map(|bar| bar.parts.iter().sum()).fold(f64::MIN_POSITIVE, f64::max);
    let scale = (WIDTH - NAMES - NUMBERS) / most.unwrap_or(longest);
    let height = bars.iter().map(|_| BAR).sum::<f64>() + 8.0;
    let mut document = Document::new().set("viewBox", format!("0 0 {WIDTH} {height}")).set("role", "img");
    let mut top = 4.0;
    for bar in bars {
        let mut left = NAMES;
        document = document.add(text((NAMES - 8.0, top + 14.0), "end", bar.name.clone()));
        for (at, part) in bar.parts.iter().enumerate() {
            let width = part * scale;
            let rectangle = Rectangle::new()
                .set("x", rounded(left))
                .set("y", top)
                .set("width", rounded(width))
                .set("height", BAR - 4.0)
                .set("class", format!("b{at}"));
            document = document.add(rectangle);
            left += width;
        }
        document = document.add(text((left + 6.0, top + 14.0), "start", bar.number.clone()));
        top += BAR;
    }
    document.to_string()
}

/// Returns the class of a line.
pub(super) fn class(colour: usize) -> String {
    let dashed = if colour < COLOURS { "" } else { " dashed" };
    format!("line s{}{dashed}", colour % COLOURS)
}

fn line(from: (f64, f64), to: (f64, f64), class: &str) -> Line {
    Line::new()
        .set("x1", rounded(from.0))
        .set("y1", rounded(from.1))
        .set("x2", rounded(to.0))
        .set("y2", rounded(to.1))
        .set("class", class)
}

fn text(at: (f64, f64), anchor: &str, content: String) -> Text {
    Text::new(content).set("x", rounded(at.0)).set("y", rounded(at.1)).set("text-anchor", anchor)
}

/// Rounds to a tenth of a pixel.
fn rounded(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

/// Returns the next larger number that is easy to read: 1, 2, 4 or 8 followed by zeros.
fn nice(value: f64) -> f64 {
    let power = 10_f64.powf(value.log10().floor());
    let factor = [1.0, 2.0, 4.0, 8.0, 10.0].into_iter().find(|factor| factor * power >= value);
    factor.unwrap_or(10.0) * power
}

fn number(value: f64) -> String {
    match value {
        value if value >= 10_000_000.0 => format!("{:.0}M", value / 1_000_000.0),
        value if value >= 10_000.0 => format!("{:.0}k", value / 1_000.0),
        value if value.fract() == 0.0 => format!("{value:.0}"),
        value => format!("{value:.1}"),
    }
}
