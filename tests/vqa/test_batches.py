import numpy as np
import pytest
import torch

from tallybox.vqa.batches import ResidentExamples, StreamedExamples, epoch_order, load_examples
from tests.support.vqa_tiny import CPU, tiny_data

ORDER = [np.array([4, 0, 7, 7]), np.array([1, 20, 3, 9])]


@pytest.fixture(params=[ResidentExamples, StreamedExamples])
def examples(request):
    data = tiny_data()
    return request.param(data.questions, data.store, CPU, torch.float32, length=1)


def test_batches_hold_what_the_store_and_the_questions_hold(examples):
    data = tiny_data()
    for rows, (batch, answers, relevance) in zip(ORDER, examples.batches(ORDER), strict=True):
        photos, offsets = data.questions.images[rows], data.store.offsets
        assert batch.mask.sum(1).tolist() == np.diff(offsets)[photos].tolist()
        assert batch.mask.any(0).all(), "no column is padding for all"
        read = np.concatenate([np.arange(offsets[row], offsets[row + 1]) for row in photos])
        raw = torch.from_numpy(np.concatenate(data.store.features)[read]).float()
        expected = raw / raw.norm(dim=-1, keepdim=True)
        assert (batch.features.norm(dim=-1)[batch.mask] - 1).abs().max() < 1e-6
        torch.testing.assert_close(batch.features[batch.mask], expected)
        assert torch.equal(batch.boxes[batch.mask], torch.from_numpy(data.store.boxes_xyxy[read]))
        longest = data.questions.lengths[rows].max()
        assert batch.words.tolist() == data.questions.words[rows, :longest].tolist()
        assert batch.lengths.tolist() == data.questions.lengths[rows].tolist()
        assert answers.tolist() == data.questions.answers[rows].tolist()
        assert relevance.shape == batch.mask.shape
        assert relevance.tolist() == data.questions.relevance[rows, : relevance.shape[1]].tolist()
        assert (relevance[~batch.mask] == -1).all()


def test_only_photos_that_are_asked_about_take_memory():
    data = tiny_data()
    asked = data.questions.at(np.isin(data.questions.images, (2, 5)))
    examples = ResidentExamples(asked, data.store, CPU, torch.float32, length=1)
    sizes = data.store.offsets[1:] - data.store.offsets[:-1]
    assert len(examples.features) == sizes[np.unique(asked.images)].sum() < sizes.sum()
    row = int(np.flatnonzero(asked.images == 5)[0])
    features, boxes, mask, _, _ = examples.at(torch.tensor([row]), proposals=9, words=3).batch
    assert features.shape == (1, 9, 6)
    assert mask.sum() == sizes[5]
    expected = data.store.boxes_xyxy[data.store.offsets[5] : data.store.offsets[6]]
    assert boxes[mask].tolist() == expected.tolist()


def test_photos_that_do_not_fit_are_streamed():
    data = tiny_data()
    assert isinstance(load_examples(data.questions, data.store, CPU, torch.float32, length=1), ResidentExamples)
    few = load_examples(data.questions, data.store, CPU, torch.float32, length=1, max_bytes=100)
    assert isinstance(few, StreamedExamples)


def test_an_epoch_shows_each_question_once_and_another_epoch_in_another_order():
    first, again, second = (epoch_order(23, 5, seed=1, epoch=epoch) for epoch in (0, 0, 1))
    assert [len(rows) for rows in first] == [5, 5, 5, 5, 3]
    assert sorted(np.concatenate(first).tolist()) == list(range(23))
    in_order = [np.concatenate(order).tolist() for order in (first, again, second)]
    assert in_order[0] == in_order[1] != in_order[2]
    assert [len(rows) for rows in epoch_order(21, 5, 0, 0)] == [5] * 4, "batch normalisation needs two questions"
    assert np.concatenate(epoch_order(23, 5, seed=2, epoch=0)).tolist() != in_order[0]
