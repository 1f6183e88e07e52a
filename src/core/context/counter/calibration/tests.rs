//! Tests what a calibration learns, and what it must not learn.

use super::*;
use crate::context::counter::{Script, Scripts};
use proptest::prelude::*;
use std::ops::RangeInclusive;

const O200K: Method = Method::Tokenizer("o200k");

fn text(script: Script, tokens: u64) -> Mix {
    let mut weights = [0; SCRIPTS];
    weights[script as usize] = 1;
    Mix::of_text(&Scripts::dealt(tokens, &weights))
}

fn english(tokens: u64) -> Mix {
    text(Script::Latin, tokens)
}

/// Returns a calibration after these reports, each an estimate of added English text and its reported count.
fn after(method: Method, reports: &[(u64, u64)]) -> Calibration {
    let mut calibration = Calibration::new(method);
    for &(estimated, tokens) in reports {
        calibration.observe(&Report { method, of: ReportScope::Added, mix: english(estimated), tokens });
    }
    calibration
}

#[test]
fn the_factor_follows_the_reports() {
    type Reports = Vec<(u64, u64)>;
    let cases: [(&str, Method, Reports, RangeInclusive<u64>); 10] = [
        ("knows nothing", Method::Characters, vec![], 1_000..=1_000),
        ("zeros say nothing", Method::Characters, vec![(0, 500), (500, 0), (0, 0)], 1_000..=1_000),
        ("a first report counts much for characters", Method::Characters, vec![(800, 960)], 1_100..=1_180),
        ("and less for a tokenizer", O200K, vec![(800, 960)], 1_020..=1_060),
        ("agreement settles", Method::Characters, vec![(800, 1_040); 10], 1_270..=1_305),
        ("for a tokenizer too", O200K, vec![(800, 1_040); 20], 1_270..=1_305),
        ("however far it is", Method::Characters, vec![(800, 2_400); 20], 2_800..=3_050),
        ("a small addition says little", Method::Characters, vec![(4, 30)], 1_000..=1_150),
        ("nonsense is bounded above", Method::Characters, vec![(1_000, u64::MAX); 200], 4_000..=4_000),
        ("nonsense is bounded below", Method::Characters, vec![(u64::MAX, 1); 200], 250..=250),
    ];
    for (name, method, reports, expected) in cases {
        let tokens = after(method, &reports).tokens(&english(1_000));
        assert!(expected.contains(&tokens), "{name}: {tokens} is not in {expected:?}");
    }
}

#[test]
fn one_absurd_report_changes_little_and_is_soon_forgotten() {
    for method in [Method::Characters, O200K] {
        for absurd in [1, 80_000, u64::MAX] {
            let mut reports = vec![(800, 880); 20];
            let learnt = after(method, &reports).tokens(&english(1_000));
            reports.push((800, absurd));
            let shaken = after(method, &reports).tokens(&english(1_000));
            assert!(shaken.abs_diff(learnt) <= 80, "{method:?} {absurd}: {learnt} became {shaken}");
            reports.extend([(800, 880); 5]);
            let again = after(method, &reports).tokens(&english(1_000));
            assert!(again.abs_diff(learnt) <= 15, "{method:?} {absurd}: {learnt} became {again}");
        }
    }
}

#[test]
fn each_script_learns_for_itself() {
    let method = Method::Characters;
    let mut calibration = Calibration::new(method);
    let (mut mixed, chinese) = (english(300), text(Script::Han, 300));
    mixed.0[Script::Han as usize] = 300;
    for turn in 0..10 {
        // Chinese costs 50 % more than estimated, English as estimated; some turns contain both.
        let (mix, tokens) = match turn % 3 {
            0 => (english(300), 300),
            1 => (chinese, 450),
            _ => (mixed, 750),
        };
        calibration.observe(&Report { method, of: ReportScope::Added, mix, tokens });
    }
    assert!(calibration.tokens(&english(1_000)).abs_diff(1_000) <= 20);
    assert!(calibration.tokens(&text(Script::Han, 1_000)).abs_diff(1_500) <= 30);
    assert!(calibration.tokens(&mixed).abs_diff(750) <= 15);
    // An unobserved script moves only by what all scripts share, and stays as uncertain as before.
    let arabic = text(Script::Arabic, 1_000);
    assert!(calibration.tokens(&arabic).abs_diff(1_000) <= 60);
    assert!(calibration.error_bound(&arabic) >= 600);
    assert!((1.1..1.4).contains(&calibration.factor()), "{}", calibration.factor());
}

#[test]
fn framing_is_learned_separately_from_the_text() {
    for method in [Method::Characters, O200K] {
        let mut calibration = Calibration::new(method);
        for size in [40, 300, 90, 500, 20, 150, 60, 220, 35, 400] {
            let mut mix = english(size);
            mix.add_frame(7);
            // The server wraps a message in 14 tokens; we assume 7.
            calibration.observe(&Report { method, of: ReportScope::Added, mix, tokens: size + 14 });
        }
        let mut short = english(10);
        short.add_frame(7);
        assert!(calibration.tokens(&short).abs_diff(24) <= 4, "{method:?}: {}", calibration.tokens(&short));
        assert!(calibration.tokens(&english(1_000)).abs_diff(1_000) <= 25);
    }
}

#[test]
fn an_answer_of_an_unbelievable_size_and_another_method_teach_nothing() {
    let fresh = Calibration::new(Method::Characters);
    let report = |method, of, tokens| Report { method, of, mix: english(300), tokens };
    for (report, learns) in [
        (report(Method::Characters, ReportScope::Answer, 330), true),
        (report(Method::Characters, ReportScope::Answer, 2_000), false),
        (report(O200K, ReportScope::Added, 330), false),
        (report(Method::Named("other"), ReportScope::Added, 330), false),
        (report(Method::Characters, ReportScope::Whole, 330), true),
        (report(Method::Characters, ReportScope::Whole, 190), false),
    ] {
        let mut calibration = fresh.clone();
        calibration.observe(&report);
        assert_eq!(calibration != fresh, learns, "{report:?}");
        assert_eq!(calibration.reports(), u64::from(learns), "{report:?}");
    }
}

#[test]
fn the_bound_shrinks_while_reports_agree_and_grows_when_they_do_not() {
    for method in [Method::Characters, O200K] {
        let mix = english(10_000);
        let mut calibration = Calibration::new(method);
        let fresh = calibration.error_bound(&mix);
        let mut last = fresh;
        for _ in 0..30 {
            calibration.observe(&Report { method, of: ReportScope::Added, mix: english(900), tokens: 905 });
            let bound = calibration.error_bound(&mix);
            assert!(bound <= last + last / 50, "{method:?}: {last} became {bound}");
            last = bound;
        }
        let disagreed = after(method, &[(900, 900), (900, 1_600)].repeat(15)).error_bound(&mix);
        assert!(last < fresh / 2 && fresh < disagreed, "{method:?}: {last} {fresh} {disagreed}");
        assert!(last >= 100, "{last}");
    }
    assert_eq!(Calibration::new(Method::Characters).error_bound(&Mix::default()), 0);
    assert_eq!(after(O200K, &[(900, 900); 50]).error_bound(&english(1)), 8);
    let first = Calibration::new(Method::Characters).error_bound(&english(10_000));
    assert!((2_000..4_000).contains(&first), "{first}");
}

fn any_report() -> impl Strategy<Value = Report> {
    let tokens = || prop_oneof![any::<u64>(), 0..100_000u64, 0..100u64];
    let of = prop_oneof![Just(ReportScope::Whole), Just(ReportScope::Added), Just(ReportScope::Answer)];
    let rows = prop::collection::vec(prop_oneof![Just(0), tokens()], ROWS);
    (of, rows, tokens()).prop_map(|(of, rows, tokens)| {
        let mix = Mix(rows.try_into().expect("as many as there are rows"));
        Report { method: Method::Characters, of, mix, tokens }
    })
}

proptest! {
    #[test]
    fn any_reports_leave_it_usable(reports in prop::collection::vec(any_report(), 0..60)) {
        let mut calibration = Calibration::new(Method::Characters);
        for report in &reports {
            calibration.observe(report);
            for row in 0..ROWS {
                let (least, most) = limits(row);
                prop_assert!((least..=most).contains(&calibration.learnt.factors[row]), "{row}");
                prop_assert!(calibration.learnt.covariance[row][row] >= 0.0, "{row}");
                prop_assert!(calibration.learnt.covariance[row][row] <= 2.0, "{row}");
            }
            let mix = report.mix;
            prop_assert_eq!(calibration.error_bound(&mix) == 0, mix.total() == 0);
        }
        prop_assert!((FACTOR_MIN..=FACTOR_MAX).contains(&calibration.factor()));
        prop_assert!(calibration.learnt.scatter.is_finite());
        prop_assert_eq!(calibration.tokens(&Mix::default()), 0);
        prop_assert!((250..=4_000).contains(&calibration.tokens(&english(1_000))));
        prop_assert!((10..=16_000).contains(&calibration.error_bound(&english(1_000))));
        // It must still be able to learn.
        for _ in 0..60 {
            calibration.observe(&Report { method: Method::Characters, of: ReportScope::Added, mix: english(1_000), tokens: 1_200 });
        }
        prop_assert!(calibration.tokens(&english(1_000)).abs_diff(1_200) <= 60, "{}", calibration.tokens(&english(1_000)));
    }

    #[test]
    fn more_text_never_costs_less(
        reports in prop::collection::vec(any_report(), 0..20),
        rows in prop::collection::vec(0..10_000u64, ROWS),
        row in 0..ROWS,
        more in 0..10_000u64,
    ) {
        let mut calibration = Calibration::new(Method::Characters);
        reports.iter().for_each(|report| calibration.observe(report));
        let mut mix = Mix(rows.try_into().expect("as many as there are rows"));
        let before = calibration.tokens(&mix);
        mix.0[row] += more;
        prop_assert!(calibration.tokens(&mix) >= before);
    }
}

#[test]
fn a_calibration_is_read_back_to_the_bit() {
    assert_eq!(Calibration::new(O200K).to_bytes(), None, "nothing was learned");
    type Reports = Vec<(u64, u64)>;
    let table: [(&str, Reports); 5] = [
        ("one report", vec![(800, 960)]),
        ("many", (1..200).map(|number| (500 + number, 600 + number * 3 % 400)).collect()),
        ("at the upper limit", vec![(1_000, u64::MAX); 200]),
        ("at the lower limit", vec![(u64::MAX, 1); 200]),
        ("after a surprise", vec![(800, 880), (800, 80_000), (800, 880)]),
    ];
    for method in [Method::Characters, O200K] {
        for (name, reports) in &table {
            let learnt = after(method, reports);
            let bytes = learnt.to_bytes().unwrap_or_else(|| panic!("{name}: nothing to store"));
            assert_eq!(Calibration::from_bytes(method, &bytes).as_ref(), Some(&learnt), "{method:?} {name}");
            let mut broken = bytes.clone();
            broken[0..4].copy_from_slice(&f32::NAN.to_le_bytes());
            for bytes in [&bytes[1..], &bytes[4..], &[], &broken] {
                assert_eq!(Calibration::from_bytes(method, bytes), None, "{name}: damaged");
            }
        }
    }
}
