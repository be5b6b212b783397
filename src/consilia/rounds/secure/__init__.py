"""Rounds whose coordinator learns the sum and no single update: masks, encryption, attested code."""
