import asyncio

from benchmarks.serve import count_requests, put_under_load
from benchmarks.synthetic_photos import made_up_photos

from tallybox.photos.shipped import shipped_estimator

CLIENTS = 200


def test_200_clients_all_get_the_librarys_answers(service):
    requests = count_requests(shipped_estimator(), made_up_photos(32, seed=1)[0])
    result = asyncio.run(put_under_load(service.address, requests, clients=CLIENTS, seconds=5))
    assert result.wrong == []
    assert result.lost == 0
    assert result.sent >= CLIENTS
