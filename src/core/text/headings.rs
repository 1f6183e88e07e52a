//! Recognises headings of a summary as models write them: any depth of `#`, bold, numbered, any case, with a colon or
//! trailing words; under other names, and in other languages.

use super::{fold::fold, slot::Slot};

/// The names that this program requests, and close variants. They count even without heading marks.
const NAMES: [(&str, Slot); 13] = [
    ("goals", Slot::Goal),
    ("goal", Slot::Goal),
    ("constraints & preferences", Slot::Constraints),
    ("constraints and preferences", Slot::Constraints),
    ("constraints", Slot::Constraints),
    ("progress", Slot::InProgress),
    ("key decisions", Slot::Decisions),
    ("decisions", Slot::Decisions),
    ("next steps", Slot::NextSteps),
    ("next step", Slot::NextSteps),
    ("critical context", Slot::Context),
    ("critical information", Slot::Context),
    ("restored facts", Slot::Restored),
];

/// Names that count only within Progress: elsewhere `Done:` is an ordinary word.
const PROGRESS_NAMES: [(&str, Slot); 5] = [
    ("done", Slot::Done),
    ("completed", Slot::Done),
    ("in progress", Slot::InProgress),
    ("blocked", Slot::Blocked),
    ("blockers", Slot::Blocked),
];

/// Other names. They count only with heading marks, and only for a section whose own name is missing from the summary.
const SYNONYMS: [(Slot, &[&str]); 6] = [
    (
        Slot::Goal,
        &[
            "objective",
            "objectives",
            "user goal",
            "user's goal",
            "main goal",
            "overall goal",
            "primary request",
            "user request",
            "purpose",
            "ziel",
            "ziele",
            "objectif",
            "objectifs",
            "objetivo",
            "objetivos",
            "obiettivo",
            "obiettivi",
            "doel",
            "cel",
            "цель",
            "цели",
            "目标",
            "目標",
            "目的",
            "ゴール",
            "목표",
        ],
    ),
    (
        Slot::Constraints,
        &[
            "preferences",
            "user preferences",
            "requirements",
            "rules",
            "einschränkungen",
            "vorgaben",
            "rahmenbedingungen",
            "randbedingungen",
            "contraintes",
            "restricciones",
            "vincoli",
            "restrições",
            "beperkingen",
            "ограничения",
            "约束",
            "约束条件",
            "約束",
            "限制",
            "制約",
            "제약",
            "제약 조건",
        ],
    ),
    (
        Slot::InProgress,
        &[
            "status",
            "current status",
            "current state",
            "fortschritt",
            "stand",
            "avancement",
            "progrès",
            "progreso",
            "progressi",
            "progresso",
            "avanzamento",
            "voortgang",
            "прогресс",
            "进展",
            "进度",
            "進度",
            "進捗",
            "진행 상황",
            "진행상황",
        ],
    ),
    (
        Slot::Decisions,
        &[
            "important decisions",
            "entscheidungen",
            "wichtige entscheidungen",
            "décisions",
            "décisions clés",
            "decisiones",
            "decisiones clave",
            "decisioni",
            "decisioni chiave",
            "decisões",
            "decisões importantes",
            "beslissingen",
            "решения",
            "ключевые решения",
            "决定",
            "关键决定",
            "关键决策",
            "決定",
            "決定事項",
            "주요 결정",
        ],
    ),
    (
        Slot::NextSteps,
        &[
            "next actions",
            "open tasks",
            "pending tasks",
            "remaining work",
            "nächste schritte",
            "prochaines étapes",
            "próximos pasos",
            "prossimi passi",
            "próximos passos",
            "volgende stappen",
            "следующие шаги",
            "下一步",
            "后续步骤",
            "後續步驟",
            "次のステップ",
            "다음 단계",
        ],
    ),
    (
        Slot::Context,
        &[
            "context",
            "key context",
            "important context",
            "facts",
            "key facts",
            "important facts",
            "key details",
            "important details",
            "kontext",
            "wichtiger kontext",
            "kritischer kontext",
            "contexte",
            "contexte critique",
            "contexto",
            "contexto crítico",
            "contesto",
            "contesto critico",
            "belangrijke context",
            "контекст",
            "важный контекст",
            "关键上下文",
            "重要上下文",
            "重要背景",
            "重要な情報",
            "重要なコンテキスト",
            "핵심 맥락",
            "중요 맥락",
        ],
    ),
];

/// Other names within Progress; only with heading marks.
const PROGRESS_SYNONYMS: [(Slot, &[&str]); 3] = [
    (
        Slot::Done,
        &[
            "finished",
            "erledigt",
            "terminé",
            "hecho",
            "completado",
            "fatto",
            "completato",
            "feito",
            "concluído",
            "сделано",
            "готово",
            "已完成",
            "完成",
            "完了",
            "완료",
        ],
    ),
    (
        Slot::InProgress,
        &[
            "ongoing",
            "in arbeit",
            "en cours",
            "en curso",
            "in corso",
            "em andamento",
            "в процессе",
            "进行中",
            "進行中",
            "진행 중",
        ],
    ),
    (
        Slot::Blocked,
        &["blockiert", "bloqué", "bloqueado", "bloccato", "заблокировано", "受阻", "阻塞", "ブロック", "차단됨"],
    ),
];

/// Words that join a second name to a section's name.
const JOINING: [&str; 12] = ["&", "and", "und", "et", "y", "e", "en", "и", "oraz", "i", "与", "和"];

/// Returns the section that this line opens under one of its own names, and the rest of the line.
pub(crate) fn named(line: &str) -> Option<(Slot, &str)> {
    let line = HeadingLine::of(line);
    NAMES.iter().find_map(|(name, slot)| Some((*slot, line.behind(name)?)))
}

/// Returns the part of Progress that this line opens.
pub(crate) fn named_in_progress(line: &str) -> Option<(Slot, &str)> {
    let line = HeadingLine::of(line);
    let own = PROGRESS_NAMES.iter().find_map(|(name, slot)| Some((*slot, line.behind(name)?)));
    own.or_else(|| line.longest(&PROGRESS_SYNONYMS, |_| true))
}

/// Returns the section, of those wanted, that this line opens under another name.
pub(crate) fn named_otherwise(line: &str, wanted: impl Fn(Slot) -> bool) -> Option<(Slot, &str)> {
    HeadingLine::of(line).longest(&SYNONYMS, wanted)
}

/// Returns true if a line has heading marks or starts in bold.
pub(crate) fn is_marked(line: &str) -> bool {
    let line = HeadingLine::of(line);
    line.is_heading || line.is_bold
}

/// Returns true if this text, in folded characters and without leading marks, starts with a heading of a summary.
pub(crate) fn is_heading(bare: &str) -> bool {
    let bare = bare.trim_start_matches(|c: char| c.is_ascii_digit()).trim_start_matches(['.', ')', ' ', '*', '_']);
    let names = NAMES.iter().chain(&PROGRESS_NAMES).map(|(name, _)| *name);
    let others = SYNONYMS.iter().chain(&PROGRESS_SYNONYMS).flat_map(|(_, names)| names.iter().copied());
    names.chain(others).any(|name| {
        let mut text = bare.chars().flat_map(char::to_lowercase);
        let same = name.chars().map(fold).all(|c| text.next() == Some(c));
        same && text.next().is_none_or(|c| !c.is_alphanumeric())
    })
}

/// A line without its heading marks.
struct HeadingLine<'a> {
    bare: &'a str,
    /// True if it has leading heading marks.
    is_heading: bool,
    is_bold: bool,
}

impl<'a> HeadingLine<'a> {
    fn of(line: &'a str) -> Self {
        let line = line.trim();
        let bare = line.trim_start_matches('#').trim_start();
        let is_heading = bare.len() < line.len();
        let inner = |text: &'a str| text.strip_prefix("**").or_else(|| text.strip_prefix("__"));
        // `1. **Goal**` and `**1. Goal**`.
        let bare = unnumbered(bare);
        let bold = inner(bare);
        Self { bare: bold.map_or(bare, unnumbered), is_heading, is_bold: bold.is_some() }
    }

    /// Returns the text after `name` if the line starts with it and that makes the line a heading.
    fn behind(&self, name: &str) -> Option<&'a str> {
        let mut text = self.bare.chars();
        if !name.chars().all(|c| text.next().is_some_and(|other| other.to_lowercase().eq([c]))) {
            return None;
        }
        let after = text.as_str();
        let rest = after.trim_start_matches(['*', '_', ':', '：', ' ', '\t', '#']);
        let gap = &after[..after.len() - rest.len()];
        if gap.contains([':', '：']) {
            return Some(rest);
        }
        // `Restricciones y preferencias`: a joined second name is part of the heading.
        let is_joined = rest.split_whitespace().next().is_some_and(|word| JOINING.contains(&word));
        match (self.is_heading || self.is_bold) && is_joined {
            true => Some(rest.split_once([':', '：']).map_or("", |(_, behind)| behind.trim_matches(['*', '_', ' ']))),
            false => (rest.is_empty() || self.is_heading && !gap.is_empty()).then_some(rest),
        }
    }

    fn longest(&self, names: &[(Slot, &[&str])], wanted: impl Fn(Slot) -> bool) -> Option<(Slot, &'a str)> {
        if !self.is_heading && !self.is_bold {
            return None;
        }
        let slots = names.iter().filter(|(slot, _)| wanted(*slot));
        let all = slots.flat_map(|(slot, names)| names.iter().map(|name| (*slot, *name)));
        let found = all.filter_map(|(slot, name)| Some((name.len(), slot, self.behind(name)?)));
        found.max_by_key(|(length, ..)| *length).map(|(_, slot, rest)| (slot, rest))
    }
}

/// Returns a line without its leading number.
fn unnumbered(text: &str) -> &str {
    text.trim_start_matches(|c: char| c.is_ascii_digit()).trim_start_matches(['.', ')']).trim_start()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heading_is_found_however_it_is_written() {
        for (line, expected) in [
            ("## Goal", Some((Slot::Goal, ""))),
            ("#### goals ##", Some((Slot::Goal, ""))),
            ("**Goal**: build it", Some((Slot::Goal, "build it"))),
            ("1. Goal: build it", Some((Slot::Goal, "build it"))),
            ("1. **Goal**", Some((Slot::Goal, ""))),
            ("**1. Goal**", Some((Slot::Goal, ""))),
            ("## **2) Goal:** build it", Some((Slot::Goal, "build it"))),
            ("Goal", Some((Slot::Goal, ""))),
            ("## Progress (so far)", Some((Slot::InProgress, "(so far)"))),
            ("Goalkeeper: none", None),
            ("Goal of the game", None),
            ("- Goal: none", None),
            ("", None),
            ("#", None),
            ("目标", None),
            ("## 目标", None),
        ] {
            assert_eq!(named(line), expected, "{line}");
        }
    }

    #[test]
    fn other_names_count_with_marks_and_where_they_are_wanted() {
        for (line, expected) in [
            ("## 目标", Some((Slot::Goal, ""))),
            ("**Ziel:** ein Boot", Some((Slot::Goal, "ein Boot"))),
            ("### Nächste Schritte", Some((Slot::NextSteps, ""))),
            ("## NÄCHSTE SCHRITTE:", Some((Slot::NextSteps, ""))),
            ("## Ограничения и предпочтения", Some((Slot::Constraints, ""))),
            ("## Einschränkungen & Präferenzen", Some((Slot::Constraints, ""))),
            ("**Restricciones y preferencias:** sin tiburones", Some((Slot::Constraints, "sin tiburones"))),
            ("## Kritischer Kontext", Some((Slot::Context, ""))),
            ("## Key facts", Some((Slot::Context, ""))),
            ("## 约束条件", Some((Slot::Constraints, ""))),
            ("Status: fine", None),
            ("## Contextual remarks", None),
            ("## Décisions clés", None),
        ] {
            assert_eq!(named_otherwise(line, |slot| slot != Slot::Decisions), expected, "{line}");
        }
        assert_eq!(named_in_progress("### 已完成"), Some((Slot::Done, "")));
        assert_eq!(named_in_progress("Done: this"), Some((Slot::Done, "this")));
        assert_eq!(named_in_progress("Erledigt: dies"), None);
    }
}
