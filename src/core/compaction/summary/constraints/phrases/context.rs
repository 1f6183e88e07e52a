//! Phrases that decide whether a sentence is an order although it looks like one, or the reverse: negations, reports,
//! narration, and the heads of lists.

use crate::core::text::words::{Listed, Phrases};

/// Phrases that look like orders and are not: statements about oneself, and guesses.
pub(in super::super) static NONE: Phrases = Phrases::new(&[
    "must be kidding",
    "must be joking",
    "must be nice",
    "must be tired",
    "must be hard",
    "must be fun",
    "must be crazy",
    "must be wrong",
    "must be a joke",
    "never mind",
    "never thought",
    "never knew",
    "never ever",
    "don t get me wrong",
    "don t bother",
    "according to the docs",
    "according to the documentation",
    "according to the manual",
    "according to the log",
    "according to the error",
    "in the story",
    "in the book",
    "in the film",
    "in the movie",
    "in the novel",
    "laut der doku",
    "laut dokumentation",
    "i must",
    "i should",
    "we should talk",
    "don t know",
    "do not know",
    "don t think",
    "don t worry",
    "don t care",
    "don t mind",
    "don t see",
    "don t remember",
    "don t understand",
    "don t have",
    "do not have",
    "should be fine",
    "should be ok",
    "must be something",
    "must be because",
    "must have been",
    "must be why",
    "may not be",
    "ich muss",
    "wir müssen los",
    "keine ahnung",
    "kein problem",
    "no sé",
]);

/// Words that negate a sentence.
pub(in super::super) static NEGATIONS: Listed = Listed::new(
    "not no never don doesn didn won can't cannot mustn shouldn without avoid forbidden nor none neither nicht nie \
     niemals kein keine keinen keiner ohne vermeide keinesfalls ne pas jamais sans aucun no nunca sin ningún ninguna \
     evita non mai senza nessun não nunca sem nenhum niet nooit geen nie nigdy bez не никогда нельзя без запрещено",
);
/// Negations in scripts without spaces.
pub(in super::super) static NEGATIONS_UNSPACED: Phrases = Phrases::new(&[
    "不要",
    "不能",
    "不得",
    "不许",
    "不可",
    "禁止",
    "从不",
    "绝不",
    "永远不",
    "别",
    "ない",
    "禁",
    "하지 마",
    "하지 말",
    "금지",
    "절대",
]);

/// Words for always and never: an order, unless the sentence says who does so.
pub(in super::super) static ADVERBS: Listed =
    Listed::new("never niemals nie immer jamais toujours nunca siempre mai sempre nooit altijd");
/// Words of sentences that narrate what someone does, did or is.
pub(in super::super) static NARRATING: Listed = Listed::new(
    "i ve have has had was were been is are am did does he she they it we who there that which the a an my our his her \
     their this these those ich habe hat hatte war waren ist sind wir er sie es der die das ein eine mein meine unser \
     unsere je j ai a avait était est sont il elle nous on ils elles le la les un une mon ma yo he ha había era fue es \
     son él ella nosotros el los las una mi io ho ha era è sono lui lei noi lo gli uno mio eu não ele ela nós o os as \
     um uma meu ik heb heeft had was is zijn wij hij zij het een mijn",
);
/// Verbs that prefer one thing to another.
pub(in super::super) static CHOOSING: Listed = Listed::new(
    "use take choose pick write call nimm nutze verwende benutze utilise utilisez prends usa utiliza use usate usare \
     gebruik",
);
/// Words after "no" that forbid nothing.
pub(in super::super) static NO_BEHIND: Listed = Listed::new(
    "problem problems idea worries thanks thank doubt way one matter rush hurry wonder it that this these those i we \
     you he she they there but and not so because need luck clue big sense point reason news comment offence offense \
     question questions change decision progress answer answers response result results update updates word sign trace \
     surprise error errors warning warnings is was are were es está hay me te se lo la le les puedo puede quiero sé \
     tengo creo fue era ha he había veo entiendo importa pasa todo como estoy soy somos",
);
/// Words of a sentence with "no" that states something.
pub(in super::super) static NO_WITHIN: Listed =
    Listed::new("yet today yesterday anymore is was are were has had came went got found happened");
/// Sources of statements that are not the user's orders.
pub(in super::super) static REPORTERS: Listed = Listed::new(
    "error message compiler log docs documentation manual article book story film movie novel linter warning test \
     output page tutorial sign poster joke",
);
/// Verbs that follow such a source.
pub(in super::super) static REPORTING: Listed = Listed::new("says said states stated tells told claims reads");
/// Words of a line that introduces a list of rules.
pub(in super::super) static LIST_HEADS: Listed = Listed::new(
    "rule rules constraint constraints requirement requirements guideline guidelines convention conventions preference \
     preferences restriction restrictions regel regeln vorgabe vorgaben anforderungen einschränkungen règle règles \
     contrainte contraintes regla reglas requisitos restricciones regole vincoli requisiti regra regras restrições \
     regels eisen правила требования ограничения zasady kurallar",
);
/// Such words in scripts without spaces.
pub(in super::super) static LIST_HEADS_UNSPACED: Phrases =
    Phrases::new(&["规则", "規則", "要求", "约束", "ルール", "条件", "규칙", "요구"]);
